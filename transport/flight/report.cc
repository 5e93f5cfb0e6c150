#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "transport/descriptor.h"
#include "transport/flight/report.h"
#include "transport/flight/tick_clock.h"

namespace moe::flight {
namespace {

constexpr size_t kShownRanks = 8;

std::string Ranks(const std::vector<int64_t>& ranks) {
  if (ranks.size() <= kShownRanks) return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "));
  return absl::StrCat("ranks ", absl::StrJoin(ranks.begin(), ranks.begin() + kShownRanks, ", "), " ... (", ranks.size(), ")");
}

// It had not ended when the job stopped, or has not yet.
bool IsOpen(const Record& r) { return r.state == OpState::kPosted || r.state == OpState::kStarted || r.state == OpState::kFailed; }

// The same operation as far as ranks must agree.
bool Same(const Record& a, const Record& b) {
  const bool counted = static_cast<MessageKind>(a.kind) != MessageKind::kAllToAllV;
  return a.kind == b.kind && a.dtype == b.dtype && a.reduce == b.reduce && a.root == b.root && (!counted || a.count == b.count) && std::string(a.what) == b.what;
}

struct Wait {
  const RankFlight* who = nullptr;
  const Record* op = nullptr;
  std::vector<int64_t> missing;   // ranks that have not come to it
};

class Story {
 public:
  explicit Story(const std::vector<RankFlight>& ranks) : ranks_(ranks) {
    for (const RankFlight& r : ranks) {
      by_rank_[r.rank] = &r;
      for (const Record& record : r.records) {
        now_ = std::max({now_, r.Wall(record.posted), r.Wall(record.done)});
        if (record.sequence >= 0) posted_[{r.rank, record.group}] = std::max(posted_[{r.rank, record.group}], record.sequence + 1);
      }
      if (r.state != RankState::kRunning) now_ = std::max(now_, r.Wall(r.ended));
      live_ = live_ || r.process == Process::kRunning || r.process == Process::kStopped;
    }
    if (live_) now_ = std::max(now_, ranks.front().Wall(TickClock::Monotonic()));
    for (const RankFlight& r : ranks) FindWait(r);
  }

  std::string Tell() const {
    std::string out;
    const int64_t world = ranks_.front().world;
    absl::StrAppend(&out, ranks_.size(), " of ", world, world == 1 ? " rank" : " ranks", ", epoch ", ranks_.front().epoch, live_ ? ", running now\n\n" : "\n\n");
    for (int64_t r = 0; r < world; ++r) {
      const auto at = by_rank_.find(r);
      absl::StrAppend(&out, "rank ", r, ": ", at == by_rank_.end() ? "has left no record: it never started, or ran with another run folder" : StateOf(*at->second), "\n");
    }
    absl::StrAppend(&out, "\n");
    for (const auto& [rank, wait] : waits_) absl::StrAppend(&out, Sentence(wait), "\n");
    if (!waits_.empty()) absl::StrAppend(&out, "\n");
    return out + Cause();
  }

 private:
  std::string Ago(const RankFlight& r, int64_t monotonic) const { return absl::StrFormat("%.3g s", 1e-9 * static_cast<double>(now_ - r.Wall(monotonic))); }

  void FindWait(const RankFlight& r) {
    // Its oldest open operation that somebody has not come to; else the oldest.
    const Record* oldest = nullptr;
    for (const Record& record : r.records) {
      if (!IsOpen(record)) continue;
      if (oldest == nullptr) oldest = &record;
      Wait w{&r, &record, Missing(r, record)};
      if (w.missing.empty()) continue;
      waits_[r.rank] = std::move(w);
      return;
    }
    if (oldest != nullptr) waits_[r.rank] = {&r, oldest, {}};
  }

  std::vector<int64_t> Missing(const RankFlight& r, const Record& record) const {
    const MessageKind kind = static_cast<MessageKind>(record.kind);
    if (kind == MessageKind::kSend || kind == MessageKind::kRecv) return {record.peer};
    std::vector<int64_t> missing;
    const auto g = r.groups.find(record.group);
    if (g == r.groups.end() || record.sequence < 0) return missing;
    for (int64_t m : g->second.members) {
      const auto posted = posted_.find({m, record.group});
      if (m != r.rank && (posted == posted_.end() || posted->second <= record.sequence)) missing.push_back(m);
    }
    return missing;
  }

  const Record* Last(const RankFlight& r) const { return r.records.empty() ? nullptr : &r.records.back(); }

  std::string Where(const RankFlight& r, const Record& record) const {
    std::string s = absl::StrCat("operation ", record.sequence);
    if (record.sequence < 0) s = "an operation";
    absl::StrAppend(&s, " of group ", record.group);
    const auto g = r.groups.find(record.group);
    if (g != r.groups.end() && !g->second.members.empty()) absl::StrAppend(&s, " (", Ranks(g->second.members), ")");
    return absl::StrCat(s, ", ", ToString(record));
  }

  std::string Doing(const RankFlight& r) const {
    const Record* last = Last(r);
    if (last == nullptr) return "it has recorded no operation";
    if (IsOpen(*last)) return absl::StrCat("its last operation, begun ", Ago(r, last->posted), " before the end of the records, did not end: ", Where(r, *last));
    return absl::StrCat("its last operation ended ", Ago(r, last->done), live_ ? " ago: " : " before the end of the records: ", Where(r, *last));
  }

  std::string StateOf(const RankFlight& r) const {
    if (r.state == RankState::kLeft) return "left in good order";
    const std::string doing = absl::StrCat("; ", Doing(r));
    if (r.state == RankState::kFailed) return absl::StrCat("ended with: ", r.message);
    switch (r.process) {
      case Process::kGone: return absl::StrCat("process ", r.pid, " is gone without a word: killed, or crashed", doing);
      case Process::kStopped: return absl::StrCat("process ", r.pid, " is stopped (SIGSTOP, or a debugger)", doing);
      case Process::kRunning: return absl::StrCat("running, process ", r.pid, doing);
      default: return absl::StrCat("on ", r.host, ", process ", r.pid, doing);
    }
  }

  std::string Sentence(const Wait& w) const {
    std::string s = absl::StrCat("rank ", w.who->rank, w.op->state == OpState::kFailed ? " waited " : " waits ");
    if (!w.missing.empty()) absl::StrAppend(&s, "for ", Ranks(w.missing), " ");
    absl::StrAppend(&s, "in ", Where(*w.who, *w.op));
    const int64_t until = w.op->done > 0 ? w.who->Wall(w.op->done) : now_;
    return absl::StrCat(s, ", for ", absl::StrFormat("%.3g s", 1e-9 * static_cast<double>(until - w.who->Wall(w.op->posted))), w.missing.empty() ? "; all members have come to it" : "");
  }

  // The first pair of ranks whose operation of the same number is not the same.
  std::optional<std::string> Parting() const {
    struct Seen { const RankFlight* who; const Record* op; };
    std::map<std::pair<int64_t, int64_t>, Seen> seen;
    std::optional<std::string> out;
    int64_t when = 0;
    for (const RankFlight& r : ranks_) {
      for (const Record& record : r.records) {
        if (record.sequence < 0) continue;
        const auto [at, fresh] = seen.emplace(std::make_pair(record.group, record.sequence), Seen{&r, &record});
        if (fresh || Same(*at->second.op, record)) continue;
        const int64_t time = std::max(r.Wall(record.posted), at->second.who->Wall(at->second.op->posted));
        if (out && time >= when) continue;
        when = time;
        out = absl::StrCat("ranks ", at->second.who->rank, " and ", r.rank, " left the common path in operation ", record.sequence, " of group ", record.group, ": rank ", at->second.who->rank, " calls ", ToString(*at->second.op),
                           ", rank ", r.rank, " calls ", ToString(record), ". All members of a group must call the same operations in the same order.");
      }
    }
    return out;
  }

  std::string Cause() const {
    if (const auto parting = Parting()) return absl::StrCat("It began here: ", *parting, "\n");
    // From the rank that has waited longest along those who have not come.
    const Wait* first = nullptr;
    for (const auto& [rank, w] : waits_)
      if (!w.missing.empty() && (first == nullptr || w.who->Wall(w.op->posted) < first->who->Wall(first->op->posted))) first = &w;
    if (first == nullptr) {
      for (const RankFlight& r : ranks_)
        if (r.state == RankState::kRunning && r.process == Process::kGone) return absl::StrCat("It began with rank ", r.rank, ": ", StateOf(r), "\n");
      for (const RankFlight& r : ranks_)
        if (r.state == RankState::kFailed) return "No rank waits for another; the ranks ended with the error above.\n";
      return "No rank waits for another.\n";
    }
    std::vector<int64_t> path = {first->who->rank};
    std::set<int64_t> visited = {first->who->rank};
    for (const Wait* w = first;;) {
      // A rank that is gone or stopped is the answer; else one that does not wait itself; else on.
      const int64_t next = *std::min_element(w->missing.begin(), w->missing.end(), [&](int64_t a, int64_t b) { return Innocence(a) < Innocence(b); });
      path.push_back(next);
      const auto at = waits_.find(next);
      if (!visited.insert(next).second)
        return absl::StrCat("It is a circle: ", absl::StrJoin(path, " waits for ", [](std::string* out, int64_t r) { absl::StrAppend(out, "rank ", r); }), ". Groups must be used in the same order on all ranks.\n");
      const bool waiting = at != waits_.end() && !at->second.missing.empty() && Innocence(next) >= 2;
      if (waiting) {
        w = &at->second;
        continue;
      }
      const auto rank = by_rank_.find(next);
      return absl::StrCat("It began with rank ", next, ": ", rank == by_rank_.end() ? "it has left no record" : StateOf(*rank->second), path.size() > 2 ? absl::StrCat(" (", absl::StrJoin(path, " waits for ", [](std::string* out, int64_t r) { absl::StrAppend(out, "rank ", r); }), ")") : "", "\n");
    }
  }

  // 0: gone or stopped; 1: does not wait; 2: waits itself.
  int Innocence(int64_t rank) const {
    const auto at = by_rank_.find(rank);
    if (at == by_rank_.end()) return 0;
    const RankFlight& r = *at->second;
    if (r.state == RankState::kRunning && (r.process == Process::kGone || r.process == Process::kStopped)) return 0;
    const auto w = waits_.find(rank);
    return w == waits_.end() || w->second.missing.empty() ? 1 : 2;
  }

  const std::vector<RankFlight>& ranks_;
  std::map<int64_t, const RankFlight*> by_rank_;
  std::map<std::pair<int64_t, int64_t>, int64_t> posted_;   // (rank, group) -> operations posted
  std::map<int64_t, Wait> waits_;
  int64_t now_ = 0;
  bool live_ = false;
};

}  // namespace

std::string ToString(const Record& r) {
  Descriptor d;
  d.kind = static_cast<MessageKind>(r.kind);
  d.dtype = r.dtype;
  d.reduce = r.reduce;
  d.root = r.root;
  d.count = r.count;
  std::string s = d.kind == MessageKind::kAllToAllV ? absl::StrCat(Name(d.kind), "(", r.bytes, " bytes sent)") : d.kind == MessageKind::kNone ? "the making of the group" : ToString(d);
  if (r.what[0] != 0) absl::StrAppend(&s, ", ", r.what);
  if (r.peer >= 0) absl::StrAppend(&s, d.kind == MessageKind::kSend ? " to rank " : " from rank ", r.peer);
  return s;
}

std::string Report(const std::vector<RankFlight>& ranks) { return Story(ranks).Tell(); }

}  // namespace moe::flight
