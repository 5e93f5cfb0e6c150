#include "core/plan/rules.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/plan/rendezvous.h"

namespace moe {
namespace {

bool BetweenStages(GroupKind kind) { return kind == GroupKind::kPp || kind == GroupKind::kReplica || kind == GroupKind::kEnds; }
bool Computes(const Op& op) { return op.micro >= 0; }

// Every rank's every group is looked at: the first two ranks of different stages in one.
void GroupsAcrossStages(const World& world, const Classes& classes, std::vector<std::string>* out) {
  const int64_t n = world.mesh.world_size();
  for (GroupKind kind : kGroupKinds) {
    if (BetweenStages(kind)) continue;
    std::vector<int64_t> first(n + world.changes.size(), -1);   // rank by group
    for (int64_t r = 0; r < n; ++r) {
      int64_t& f = first[classes.group_id(kind, r)];
      if (f < 0) f = r;
      const int64_t a = world.mesh.coordinate(f, Axis::kPp), b = world.mesh.coordinate(r, Axis::kPp);
      if (a == b) continue;
      out->push_back(absl::StrCat("group across stages: ", GroupWords(world, kind, r), " crosses the pipeline axis pp: rank ", f, " is in stage ", a, ", rank ", r, " in stage ", b,
                                  "; collectives of a layer must stay inside its stage"));
      break;
    }
  }
}

std::string AsKey(const Op& op) {
  return Computes(op) ? Words(op) : ToString(op);
}

void RanksOfAStage(const World& world, std::vector<std::string>* out) {
  for (const auto& [rank, program] : world.own) {
    const int64_t stage = world.mesh.coordinate(rank, Axis::kPp);
    World plain{world.config, world.mesh, world.chunks, world.programs, world.training, world.head_rows, {}, world.changes};
    const RankProgram others = plain.ProgramOf(rank);
    const std::string rest = absl::StrCat("the program of stage ", stage);
    std::map<std::string, int64_t> count;
    std::set<int64_t> micro;
    for (const RankOp& o : program) {
      ++count[AsKey(o.op)];
      if (Computes(o.op)) micro.insert(o.op.micro);
    }
    bool differs = false;
    for (const RankOp& o : others) {
      if (--count[AsKey(o.op)] >= 0 || differs) continue;
      differs = true;
      if (Computes(o.op) && micro.count(o.op.micro) == 0)
        out->push_back(absl::StrCat("micro-batch missing: rank ", rank, " never computes micro-batch ", o.op.micro, ": ", rest, " has the ", Words(o.op)));
      else
        out->push_back(absl::StrCat("operation missing: rank ", rank, " never executes ", AsKey(o.op), ", which ", rest, " has"));
    }
    for (const auto& [key, n] : count) {
      if (n <= 0 || differs) continue;
      differs = true;
      out->push_back(absl::StrCat("operation too many: rank ", rank, " executes ", key, ", which ", rest, " does not have"));
    }
    if (differs) continue;
    for (size_t i = 0; i < program.size(); ++i) {
      const auto &a = *program[i].collectives, &b = *others[i].collectives;
      if (AsKey(program[i].op) != AsKey(others[i].op)) {
        out->push_back(absl::StrCat("groups used in opposite order: rank ", rank, " executes ", AsKey(program[i].op), " before ", AsKey(others[i].op), ", ", rest, " has them the other way round"));
        break;
      }
      const auto same = [](const Collective& x, const Collective& y) { return x.kind == y.kind && x.group == y.group && x.what == y.what && x.layer == y.layer; };
      const size_t n = std::min(a.size(), b.size());
      size_t k = 0;
      while (k < n && same(a[k], b[k])) ++k;
      if (k == a.size() && k == b.size()) continue;
      const auto words = [&](const std::vector<Collective>& list) { return k < list.size() ? absl::StrCat("\"", list[k].what, "\" on ", GroupWords(world, list[k].group, rank)) : std::string("nothing more"); };
      out->push_back(absl::StrCat("groups used in opposite order: rank ", rank, " in ", Words(program[i].op), " comes to ", words(a), " where ", rest, " has ", words(b)));
      break;
    }
  }
}

void Shared(const World& world, std::vector<std::string>* out) {
  const auto shared = [&](int64_t stage) {
    std::vector<OpKind> list;
    for (const Op& op : world.programs[stage])
      if (!Computes(op) && op.kind != OpKind::kExchange) list.push_back(op.kind);
    return list;
  };
  const int64_t P = static_cast<int64_t>(world.programs.size());
  std::vector<std::vector<OpKind>> lists;
  for (int64_t s = 0; s < P; ++s) lists.push_back(shared(s));
  for (int64_t s = 0; s < P; ++s) {
    for (int64_t other : {int64_t{0}, P - 1}) {
      for (OpKind kind : lists[other]) {
        if (std::count(lists[s].begin(), lists[s].end(), kind) >= std::count(lists[other].begin(), lists[other].end(), kind)) continue;
        out->push_back(absl::StrCat("operation missing: stage ", s, " (rank ", world.mesh.Group(GroupKind::kPp, 0)[s], " and others) never executes ", Name(kind), ", which stage ", other, " does; what all stages share is unconditional"));
        return;
      }
    }
    if (lists[s].size() == lists[0].size() && lists[s] != lists[0]) out->push_back(absl::StrCat("stages ", 0, " and ", s, " have what they share in different orders"));
  }
}

void Messages(const World& world, std::vector<std::string>* out) {
  std::map<std::array<int64_t, 5>, int64_t> balance;   // sends less receives of (gradient, boundary, micro, from, to)
  const int64_t P = static_cast<int64_t>(world.programs.size());
  for (int64_t s = 0; s < P; ++s)
    for (const Op& op : world.programs[s])
      for (const Transfer& t : op.transfers) balance[{t.gradient, t.boundary, t.micro, t.send ? s : t.peer, t.send ? t.peer : s}] += t.send ? 1 : -1;
  for (const auto& [key, n] : balance) {
    if (n == 0) continue;
    const std::string message = absl::StrCat(key[0] ? "gradient" : "activation", " of micro-batch ", key[2], " over boundary ", key[1]);
    out->push_back(n > 0 ? absl::StrCat("message without receiver: stage ", key[3], " sends the ", message, " to stage ", key[4], ", which never receives it")
                         : absl::StrCat("message without sender: stage ", key[4], " waits for the ", message, " from stage ", key[3], ", which never sends it"));
    return;
  }
}

}  // namespace

std::vector<std::string> BrokenRules(const World& world, const Classes& classes) {
  std::vector<std::string> out;
  GroupsAcrossStages(world, classes, &out);
  RanksOfAStage(world, &out);
  Shared(world, &out);
  Messages(world, &out);
  return out;
}

}  // namespace moe
