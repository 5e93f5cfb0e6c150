// The rates of this machine that a plan's prediction needs, as ranks that all share it would find them.
#ifndef MOE_CAPI_MEASURE_H_
#define MOE_CAPI_MEASURE_H_

#include "core/base/status.h"
#include "core/config/config.pb.h"
#include "core/plan/report/machine.h"

namespace moe::capi {

// Products in the shapes of the model's layers, copies through memory, messages between two threads, steps of a short model; on as
// many ranks at once as the cores hold. Some seconds. INVALID_ARGUMENT for a layout that the ranks cannot have.
absl::StatusOr<Machine> MeasureMachine(const config::Config& c);

}  // namespace moe::capi
#endif  // MOE_CAPI_MEASURE_H_
