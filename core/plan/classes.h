// Ranks that behave alike. Two ranks are in one class when they have the same program and, for every kind of group, the groups
// that they are in have the same numbers of ranks of every class (an equitable partition: what one rank of a class can do at any
// time, all of them can). Found by refining, from stages and deviating ranks on, until nothing splits any more.
#ifndef MOE_CORE_PLAN_CLASSES_H_
#define MOE_CORE_PLAN_CLASSES_H_

#include <array>
#include <cstdint>
#include <vector>

#include "core/plan/check.h"

namespace moe {

class Classes {
 public:
  explicit Classes(const World& world);

  int64_t count() const { return static_cast<int64_t>(first_.size()); }
  int64_t of(int64_t rank) const { return class_[rank]; }
  int64_t first_rank(int64_t c) const { return first_[c]; }   // the smallest of the class
  // Classes of the ranks in the group of this kind that a rank of the class is in, ascending.
  const std::vector<int64_t>& with(int64_t c, GroupKind kind) const { return with_[c][static_cast<size_t>(kind)]; }
  // The class at stage `stage` of a rank's pipeline group; -1: none.
  int64_t at_stage(int64_t c, int64_t stage) const { return stage >= 0 && stage < static_cast<int64_t>(at_stage_[c].size()) ? at_stage_[c][stage] : -1; }
  // The same for two ranks if and only if they are in one group of this kind.
  int64_t group_id(GroupKind kind, int64_t rank) const { return id_[static_cast<size_t>(kind)][rank]; }

 private:
  void Identify(const World& world);
  bool Refine(const World& world);
  void Describe(const World& world);

  std::vector<int64_t> class_, first_;
  std::array<std::vector<int32_t>, kGroupKinds.size()> id_;
  std::vector<std::array<std::vector<int64_t>, kGroupKinds.size()>> with_;
  std::vector<std::vector<int64_t>> at_stage_;
};

}  // namespace moe
#endif  // MOE_CORE_PLAN_CLASSES_H_
