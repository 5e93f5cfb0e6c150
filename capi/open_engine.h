// The one place where device, transport and modules are put together.
#ifndef MOE_CAPI_OPEN_ENGINE_H_
#define MOE_CAPI_OPEN_ENGINE_H_

#include "capi/engine_state.h"
#include "core/model/model.h"

namespace moe::capi {

// Collective over the world. `options` has been read by ReadStruct.
absl::StatusOr<std::shared_ptr<EngineState>> OpenEngine(const config::Config& config, const moe_engine_options& options);

// What a model of this engine works with.
ModelContext ContextOf(EngineState* engine);

}  // namespace moe::capi
#endif  // MOE_CAPI_OPEN_ENGINE_H_
