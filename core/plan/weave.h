// Puts the exchanges between the stages' computing ops, so that no order of execution can make stages wait for each other.
#ifndef MOE_CORE_PLAN_WEAVE_H_
#define MOE_CORE_PLAN_WEAVE_H_

#include <vector>

#include "core/plan/program.h"

namespace moe {

// One op of a stage with the messages that must have come before it and those that it makes.
struct WeaveStep {
  Op op;
  std::vector<Transfer> needs, gives;
  bool all_stages = false;   // done when every stage is at its one: a collective over the pipeline
};

// Between two steps of a stage comes one exchange: what the first one gives and what the second one needs. All stages are walked
// together as if no message were ever buffered (it moves when both sides have posted it). Where all stages then wait, the
// receive that its stage will need soonest is posted earlier, in the exchange in which that stage waits. What comes out ends
// with or without buffers, at any speed of any stage. INTERNAL when the steps themselves wait for each other.
absl::StatusOr<std::vector<StageProgram>> Weave(const ScheduleShape& shape, const std::vector<std::vector<WeaveStep>>& steps);

}  // namespace moe
#endif  // MOE_CORE_PLAN_WEAVE_H_
