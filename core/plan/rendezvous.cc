#include "core/plan/rendezvous.h"

#include <algorithm>

#include "absl/strings/str_join.h"

namespace moe {
namespace {

// A message as its receiver or sender knows it.
std::array<int64_t, 4> Key(const Transfer& t, bool send) { return {send, t.gradient, t.boundary, t.micro}; }

bool SameStep(const Op& a, const Op& b) { return a.kind == b.kind && a.chunk == b.chunk && a.micro == b.micro; }
bool Same(const Collective& a, const Collective& b) { return a.kind == b.kind && a.group == b.group && a.layer == b.layer && a.what == b.what; }
bool Matches(const Transfer& a, const Transfer& b) { return a.send != b.send && a.gradient == b.gradient && a.boundary == b.boundary && a.micro == b.micro; }

}  // namespace

Rendezvous::Rendezvous(const World& world, const Classes& classes) : world_(world), classes_(classes), state_(classes.count()) {
  std::map<std::pair<int64_t, GroupSizes>, std::shared_ptr<const RankProgram>> programs;   // of a stage for sizes of groups
  for (int64_t c = 0; c < classes.count(); ++c) {
    const int64_t rank = classes.first_rank(c);
    if (world.own.count(rank) == 1) {
      state_[c].program = std::make_shared<const RankProgram>(world.ProgramOf(rank));
      continue;
    }
    GroupSizes sizes;
    for (GroupKind kind : kGroupKinds) sizes[static_cast<size_t>(kind)] = world.GroupSize(kind, rank);
    auto& program = programs[{world.mesh.coordinate(rank, Axis::kPp), sizes}];
    if (program == nullptr) program = std::make_shared<const RankProgram>(world.ProgramOf(rank));
    state_[c].program = program;
  }
}

bool Rendezvous::SameCollective(const State& a, const State& b) const {
  return !Ended(a) && !Ended(b) && SameStep(At(a).op, At(b).op) && At(a).op.kind != OpKind::kExchange && Same(CollectiveAt(a), CollectiveAt(b));
}

void Rendezvous::Next(State* s) {
  ++operations_;
  if (++s->index < At(*s).collectives->size() && At(*s).op.kind != OpKind::kExchange) return;
  ++s->op;
  s->index = 0;
  s->posted = false;
}

// True when the exchange is over.
bool Rendezvous::Post(int64_t c) {
  State& s = state_[c];
  if (!s.posted) {
    s.posted = true;
    for (const Transfer& t : At(s).op.transfers) {
      const int64_t peer = classes_.at_stage(c, t.peer);
      if (peer >= 0) {
        State& other = state_[peer];
        const auto it = other.open.find(Key(t, !t.send));
        if (it != other.open.end()) {
          if (--it->second == 0) other.open.erase(it);
          if (--other.pending == 0) ready_.push_back(peer);
          continue;
        }
      }
      ++s.open[Key(t, t.send)];
      ++s.pending;
    }
  }
  return s.pending == 0;
}

void Rendezvous::Walk(int64_t c) {
  State& s = state_[c];
  while (!Ended(s)) {
    const RankOp& at = At(s);
    if (at.op.kind == OpKind::kExchange) {
      if (!Post(c)) return;
      Next(&s);
    } else if (at.collectives->empty()) {
      Next(&s);
    } else {
      const std::vector<int64_t>& with = classes_.with(c, CollectiveAt(s).group);
      for (int64_t other : with)
        if (other != c && !SameCollective(s, state_[other])) return;
      for (int64_t other : with) {
        Next(&state_[other]);
        if (other != c) ready_.push_back(other);
      }
    }
  }
}

bool Rendezvous::Run() {
  for (int64_t c = 0; c < classes_.count(); ++c) ready_.push_back(c);
  while (!ready_.empty()) {
    const int64_t c = ready_.front();
    ready_.pop_front();
    Walk(c);
  }
  for (const State& s : state_)
    if (!Ended(s)) return false;
  return true;
}

bool Rendezvous::Ended(int64_t rank) const { return Ended(state_[classes_.of(rank)]); }
bool Rendezvous::InExchange(int64_t rank) const { return !Ended(rank) && At(state_[classes_.of(rank)]).op.kind == OpKind::kExchange; }

int64_t Rendezvous::PeerRank(int64_t rank, int64_t stage) const {
  for (int64_t r : world_.Group(GroupKind::kPp, rank))
    if (world_.mesh.coordinate(r, Axis::kPp) == stage) return r;
  return -1;
}

// A message of the exchange in which `rank` is that waits for `other`.
const Transfer* Rendezvous::OpenTransfer(int64_t rank, int64_t other) const {
  const State& s = state_[classes_.of(rank)];
  for (const Transfer& t : At(s).op.transfers)
    if (s.open.count(Key(t, t.send)) == 1 && PeerRank(rank, t.peer) == other) return &t;
  return nullptr;
}

std::vector<int64_t> Rendezvous::WaitsFor(int64_t rank, size_t most) const {
  std::vector<int64_t> out;
  const State& s = state_[classes_.of(rank)];
  if (Ended(s)) return out;
  if (InExchange(rank)) {
    for (const Transfer& t : At(s).op.transfers) {
      const int64_t peer = PeerRank(rank, t.peer);
      if (s.open.count(Key(t, t.send)) == 1 && peer >= 0) out.push_back(peer);
    }
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
  } else {
    for (int64_t r : world_.Group(CollectiveAt(s).group, rank)) {
      if (out.size() == most) break;
      if (classes_.of(r) != classes_.of(rank) && !SameCollective(s, state_[classes_.of(r)])) out.push_back(r);
    }
  }
  if (out.size() > most) out.resize(most);
  return out;
}

bool Rendezvous::Waits(int64_t rank, int64_t other) const {
  const State &mine = state_[classes_.of(rank)], &theirs = state_[classes_.of(other)];
  if (Ended(mine)) return false;
  if (InExchange(rank)) return OpenTransfer(rank, other) != nullptr;
  const GroupKind kind = CollectiveAt(mine).group;
  return classes_.group_id(kind, rank) == classes_.group_id(kind, other) && &mine != &theirs && !SameCollective(mine, theirs);
}

std::string Words(const Op& op) {
  if (op.micro < 0) return Name(op.kind);
  return absl::StrCat(Name(op.kind), " of micro-batch ", op.micro, op.chunk >= 0 ? absl::StrCat(" in virtual stage ", op.chunk) : "");
}

std::string GroupWords(const World& world, GroupKind kind, int64_t rank) {
  const std::vector<int64_t> members = world.Group(kind, rank);
  const std::string text = absl::StrCat(Name(kind), " group [");
  if (members.size() <= 8) return absl::StrCat(text, absl::StrJoin(members, ","), "]");
  return absl::StrCat(text, absl::StrJoin(members.begin(), members.begin() + 4, ","), ",...,", members.back(), "] of ", members.size(), " ranks");
}

std::string Rendezvous::Where(int64_t rank) const {
  const State& s = state_[classes_.of(rank)];
  if (Ended(s)) return "the end of the step";
  if (InExchange(rank)) return ToString(At(s).op);
  const Collective& c = CollectiveAt(s);
  return absl::StrCat(Name(c.kind), " \"", c.what, "\"", c.layer >= 0 ? absl::StrCat(" of layer ", c.layer) : "", At(s).op.micro >= 0 || c.what != Name(At(s).op.kind) ? " in " + Words(At(s).op) : "", " on ",
                      GroupWords(world_, c.group, rank));
}

std::string Rendezvous::WaitText(int64_t rank, int64_t other) const {
  if (!InExchange(rank)) return Where(rank);
  const Transfer* t = OpenTransfer(rank, other);
  if (t == nullptr) return Where(rank);
  std::string text = absl::StrCat(t->send ? "send of " : "receive of ", t->gradient ? "gradient" : "activation", " of micro-batch ", t->micro, t->send ? " to" : " from", " rank ", other);
  if (At(state_[classes_.of(rank)]).op.transfers.size() > 1) absl::StrAppend(&text, " in ", Where(rank));
  return text;
}

bool Rendezvous::ComesLater(int64_t rank, int64_t other) const {
  const State &mine = state_[classes_.of(rank)], &theirs = state_[classes_.of(other)];
  if (Ended(mine)) return false;
  const Transfer* message = InExchange(rank) ? OpenTransfer(rank, other) : nullptr;
  for (size_t i = theirs.op; i < theirs.program->size(); ++i) {
    const RankOp& later = (*theirs.program)[i];
    if (message != nullptr) {
      for (const Transfer& t : later.op.transfers)
        if (Matches(t, *message)) return true;
    } else if (!InExchange(rank) && SameStep(later.op, At(mine).op)) {
      for (size_t k = i == theirs.op ? theirs.index : 0; k < later.collectives->size(); ++k)
        if (Same((*later.collectives)[k], CollectiveAt(mine))) return true;
    }
  }
  return false;
}

}  // namespace moe
