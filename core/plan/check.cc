#include "core/plan/check.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "core/plan/classes.h"
#include "core/plan/rendezvous.h"
#include "core/plan/rules.h"

namespace moe {
namespace {

constexpr size_t kMost = 64;   // ranks that one rank waits for and that are looked at

// Ranks that wait for each other: each for the next one, the last one for the first one or, when it has ended, for nobody.
std::vector<int64_t> FindWaiting(const Rendezvous& run, const Classes& classes, const World& world) {
  // One of each class, those that deviate first: a mistake is easiest to see at the rank that makes it.
  std::vector<int64_t> ranks;
  for (const auto& [rank, program] : world.own) ranks.push_back(rank);
  for (int64_t c = 0; c < classes.count(); ++c) ranks.push_back(classes.first_rank(c));
  for (int64_t a : ranks)
    for (int64_t b : run.WaitsFor(a, kMost))
      if (run.Waits(b, a)) return {std::min(a, b), std::max(a, b)};
  for (int64_t a : ranks)
    for (int64_t b : run.WaitsFor(a, kMost))
      if (run.Ended(b)) return {a, b};
  for (int64_t start : ranks) {
    std::vector<int64_t> chain = {start};
    for (;;) {
      const std::vector<int64_t> next = run.WaitsFor(chain.back(), 1);
      if (next.empty()) break;
      const auto again = std::find(chain.begin(), chain.end(), next.front());
      if (again != chain.end()) return std::vector<int64_t>(again, chain.end());
      chain.push_back(next.front());
    }
    if (chain.size() > 1) return {chain[chain.size() - 2], chain.back()};
  }
  return {};
}

// The kind of mistake that the waiting itself shows.
std::string Cause(const Rendezvous& run, const std::vector<int64_t>& ring) {
  bool later = true, exchanges = true;
  for (size_t i = 0; i < ring.size(); ++i) {
    const int64_t rank = ring[i], next = ring[(i + 1) % ring.size()];
    if (!run.Ended(rank) && !run.ComesLater(rank, next)) return absl::StrCat("rank ", next, " never comes to what rank ", rank, " waits for");
    later = later && !run.Ended(rank);
    exchanges = exchanges && run.InExchange(rank);
  }
  if (later && exchanges) return "send and receive not fused: each waits for a message that the other posts only after its own is taken; post both in one exchange";
  return "groups used in opposite order: each waits in a collective that the other comes to only later";
}

}  // namespace

absl::StatusOr<Verdict> CheckPrograms(const World& world) {
  const int64_t P = world.mesh.size(Axis::kPp), n = world.mesh.world_size();
  if (static_cast<int64_t>(world.programs.size()) != P) return InvalidArgument("there are programs for ", world.programs.size(), " stages, mesh.pp is ", P);
  for (const auto& [rank, program] : world.own)
    if (rank < 0 || rank >= n) return InvalidArgument("rank ", rank, " has a program of its own, outside the world of ", n);
  for (const GroupChange& change : world.changes)
    if (change.members.empty() || change.members.front() < 0 || change.members.back() >= n || !std::is_sorted(change.members.begin(), change.members.end()))
      return InvalidArgument("a changed ", Name(change.kind), " group must have ranks in 0 .. ", n - 1, ", ascending");
  for (const StageProgram& p : world.programs)
    for (const Op& op : p)
      if (op.micro >= 0 && (op.chunk < 0 || op.chunk >= static_cast<int64_t>(world.chunks.size()))) return InvalidArgument(ToString(op), " is of virtual stage ", op.chunk, "; there are ", world.chunks.size());

  const Classes classes(world);
  Rendezvous run(world, classes);
  Verdict v;
  v.classes = classes.count();
  std::vector<std::string> lines = BrokenRules(world, classes);
  const bool ended = run.Run();
  v.operations = run.operations();
  v.free = ended && lines.empty();
  if (v.free) {
    v.text = absl::StrCat("free of deadlock: ", n, n == 1 ? " rank" : " ranks", " in ", v.classes, v.classes == 1 ? " class" : " classes", " come to the end of the step without a buffered message; ", v.operations, " operations simulated");
    return v;
  }
  if (ended) {
    lines.push_back("no rank waits for ever, but the programs are not those of one job");
  } else {
    const std::vector<int64_t> ring = FindWaiting(run, classes, world);
    if (ring.size() < 2) {
      lines.push_back("deadlock: a message goes to a stage that does not exist");
    } else {
      v.first_rank = ring[0];
      v.second_rank = ring[1];
      v.first_operation = run.WaitText(ring[0], ring[1]);
      v.second_operation = run.WaitText(ring[1], ring[2 % ring.size()]);
      if (lines.empty()) lines.push_back(Cause(run, ring));
      std::string waits = "deadlock: ";
      for (size_t i = 0; i < ring.size() && i < 8; ++i) {
        const int64_t rank = ring[i], next = ring[(i + 1) % ring.size()];
        absl::StrAppend(&waits, i > 0 ? "; " : "", "rank ", rank, " (stage ", world.mesh.coordinate(rank, Axis::kPp), ") ");
        if (run.Ended(rank)) absl::StrAppend(&waits, "is at the end of the step and comes no more");
        else absl::StrAppend(&waits, "waits for rank ", next, " in ", run.WaitText(rank, next));
      }
      if (ring.size() > 8) absl::StrAppend(&waits, "; and so on, ", ring.size(), " ranks in a ring");
      lines.push_back(waits);
    }
  }
  v.text = absl::StrJoin(lines, "\n");
  return v;
}

}  // namespace moe
