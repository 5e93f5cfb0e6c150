#include "core/plan/classes.h"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace moe {
namespace {

uint64_t Mix(uint64_t x) {   // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

Classes::Classes(const World& world) {
  const int64_t n = world.mesh.world_size();
  Identify(world);
  class_.resize(n);
  for (int64_t r = 0; r < n; ++r) class_[r] = world.mesh.coordinate(r, Axis::kPp);
  int64_t next = world.mesh.size(Axis::kPp);
  for (const auto& [rank, program] : world.own) class_[rank] = next++;
  while (Refine(world)) {}
  Describe(world);
}

void Classes::Identify(const World& world) {
  const int64_t n = world.mesh.world_size();
  for (GroupKind kind : kGroupKinds) {
    std::vector<int32_t>& id = id_[static_cast<size_t>(kind)];
    id.resize(n);
    for (int64_t r = 0; r < n; ++r) id[r] = static_cast<int32_t>(world.mesh.FirstMember(kind, r));
  }
  int64_t next = n;
  for (const GroupChange& change : world.changes) {
    for (int64_t r : change.members) id_[static_cast<size_t>(change.kind)][r] = static_cast<int32_t>(next);
    ++next;
  }
}

bool Classes::Refine(const World& world) {
  const int64_t n = world.mesh.world_size();
  std::vector<uint64_t> colour(n);
  for (int64_t r = 0; r < n; ++r) colour[r] = Mix(class_[r]);
  std::vector<uint64_t> look = colour, sum(n + world.changes.size()), members(sum.size());
  for (size_t k = 0; k < kGroupKinds.size(); ++k) {
    std::fill(sum.begin(), sum.end(), 0);
    std::fill(members.begin(), members.end(), 0);
    for (int64_t r = 0; r < n; ++r) {
      sum[id_[k][r]] += colour[r];   // the same for every order of the ranks
      ++members[id_[k][r]];
    }
    for (int64_t r = 0; r < n; ++r) look[r] = Mix(look[r] ^ Mix(sum[id_[k][r]] + Mix(members[id_[k][r]] + k)));
  }
  std::unordered_map<uint64_t, int64_t> number;
  const int64_t before = static_cast<int64_t>(first_.size());
  first_.clear();
  for (int64_t r = 0; r < n; ++r) {
    const auto [it, is_new] = number.emplace(look[r], static_cast<int64_t>(first_.size()));
    if (is_new) first_.push_back(r);
    class_[r] = it->second;
  }
  return static_cast<int64_t>(first_.size()) != before;
}

void Classes::Describe(const World& world) {
  with_.resize(count());
  at_stage_.assign(count(), std::vector<int64_t>(world.mesh.size(Axis::kPp), -1));
  for (GroupKind kind : kGroupKinds) {
    std::unordered_map<int32_t, int64_t> seen;   // group -> class that has been asked
    for (int64_t c = 0; c < count(); ++c) {
      std::vector<int64_t>& with = with_[c][static_cast<size_t>(kind)];
      const auto [it, is_new] = seen.emplace(id_[static_cast<size_t>(kind)][first_[c]], c);
      if (is_new) {
        for (int64_t r : world.Group(kind, first_[c])) with.push_back(class_[r]);
        std::sort(with.begin(), with.end());
        with.erase(std::unique(with.begin(), with.end()), with.end());
      } else {
        with = with_[it->second][static_cast<size_t>(kind)];
      }
      if (kind != GroupKind::kPp) continue;
      for (int64_t other : with) at_stage_[c][world.mesh.coordinate(first_[other], Axis::kPp)] = other;
    }
  }
}

}  // namespace moe
