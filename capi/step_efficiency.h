// How far a step of this machine is from what the cost model makes of its rates.
#ifndef MOE_CAPI_STEP_EFFICIENCY_H_
#define MOE_CAPI_STEP_EFFICIENCY_H_

#include <optional>

#include "core/base/status.h"
#include "core/config/config.pb.h"
#include "core/plan/report/machine.h"

namespace moe::capi {

// Predicted over measured time of training steps of a short model with `c`'s widths, on `ranks` threads of this process that train
// together, so that waiting for each other is in it: in `c`'s layout when it has as many ranks, data-parallel otherwise. Nothing
// when such a model is too large to be tried here (over 64 million parameters) or cannot be trained. A few seconds.
absl::StatusOr<std::optional<double>> StepEfficiency(const config::Config& c, const Machine& machine, int64_t ranks);

}  // namespace moe::capi
#endif  // MOE_CAPI_STEP_EFFICIENCY_H_
