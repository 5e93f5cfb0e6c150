// From a configuration to what its step's programs depend on: the plan and the engine take it from here, so that they cannot differ.
#ifndef MOE_CORE_PLAN_STEP_SHAPE_H_
#define MOE_CORE_PLAN_STEP_SHAPE_H_

#include "core/plan/program.h"

namespace moe {

// Micro-batches of a step: of the data-parallel rank with the most sequences.
int64_t NumMicroBatches(const config::Config& c, int64_t stages, int64_t dp);

// Whether the balancing loss of the whole batch must know all routes before the first backward.
bool NeedsRoutingSums(const config::Config& c);

absl::StatusOr<StepShape> StepShapeOf(const config::Config& c, int64_t stages, int64_t micro_batches);

}  // namespace moe
#endif  // MOE_CORE_PLAN_STEP_SHAPE_H_
