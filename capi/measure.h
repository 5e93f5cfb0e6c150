// The rates of this machine that a plan's prediction needs, as ranks that all share it would find them.
#ifndef MOE_CAPI_MEASURE_H_
#define MOE_CAPI_MEASURE_H_

#include "core/base/status.h"
#include "core/config/config.pb.h"
#include "core/plan/report/machine.h"

namespace moe::capi {

// Products in the shapes of the model's layers, copies through memory, messages between two threads. About a second.
absl::StatusOr<Machine> MeasureMachine(const config::Config& c);

}  // namespace moe::capi
#endif  // MOE_CAPI_MEASURE_H_
