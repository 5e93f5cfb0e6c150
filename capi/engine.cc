#include "capi/engine_state.h"
#include "capi/open_engine.h"
#include "nlohmann/json.hpp"

using moe::capi::Call;
using moe::capi::Catch;
using moe::capi::EngineState;
using moe::capi::NullArgument;
using moe::capi::ToString;

extern "C" {

moe_status* moe_inproc_create(int64_t world_size, moe_inproc** world) {
  return Catch([&]() -> absl::Status {
    if (world == nullptr) return NullArgument("world");
    if (world_size < 1 || world_size > 4096) return moe::InvalidArgument("world_size is ", world_size, ", must be 1 to 4096");
    *world = new moe_inproc(world_size);
    return absl::OkStatus();
  });
}

void moe_inproc_destroy(moe_inproc* world) {
  if (world != nullptr && !world->fork_guard.in_child()) delete world;
}

moe_status* moe_engine_create(const moe_config* config, const moe_engine_options* options, moe_engine** engine) {
  return Catch([&]() -> absl::Status {
    if (config == nullptr) return NullArgument("config");
    if (engine == nullptr) return NullArgument("engine");
    MOE_ASSIGN_OR_RETURN(const moe_engine_options o, moe::capi::ReadStruct("options", options));
    auto handle = std::make_unique<moe_engine>(nullptr);   // memory first: after this nothing fails on this rank alone
    MOE_ASSIGN_OR_RETURN(handle->state, moe::capi::OpenEngine(config->config, o));
    *engine = handle.release();
    return absl::OkStatus();
  });
}

int64_t moe_engine_rank(const moe_engine* engine) { return engine ? engine->state->rank : -1; }
int64_t moe_engine_world_size(const moe_engine* engine) { return engine ? engine->state->world_size : -1; }

moe_status* moe_engine_describe(moe_engine* engine, char** json) {
  return Call("engine", engine, [&]() -> absl::Status {
    if (json == nullptr) return NullArgument("json");
    EngineState& s = *engine->state;
    nlohmann::ordered_json j;
    j["rank"] = s.rank;
    j["world_size"] = s.world_size;
    j["device"] = {{"name", s.device->name()}, {"threads", s.device->num_threads()}, {"details", s.device->Describe()}};
    j["threads"] = s.device->num_threads();
    j["transport"] = s.transport->name();
    j["peers"] = s.transport->DescribePeers();
    for (moe::Axis a : {moe::Axis::kDp, moe::Axis::kTp, moe::Axis::kPp, moe::Axis::kCp, moe::Axis::kEp, moe::Axis::kEtp, moe::Axis::kEdp})
      j["mesh"][moe::Name(a)] = {{"size", s.mesh->size(a)}, {"coordinate", s.mesh->coordinate(s.rank, a)}};
    *json = ToString(j.dump());
    return absl::OkStatus();
  });
}

moe_status* moe_engine_measure_peak(moe_engine* engine, double* gflops) {
  return Call("engine", engine, [&]() -> absl::Status {
    if (gflops == nullptr) return NullArgument("gflops");
    MOE_ASSIGN_OR_RETURN(*gflops, engine->state->device->MeasurePeakGflops());
    return absl::OkStatus();
  });
}

// Not through the gate: the thread inside may be the one that waits.
moe_status* moe_engine_abort(moe_engine* engine, const char* message) {
  return Catch([&]() -> absl::Status {
    if (engine == nullptr) return NullArgument("engine");
    if (message == nullptr) return NullArgument("message");
    const std::shared_ptr<EngineState> s = engine->state;
    if (s->fork_guard.in_child()) return moe::FailedPrecondition("this engine was made before fork(); the child process has no part in its job");
    moe::FailureInfo info;
    info.origin_rank = s->rank;
    s->transport->Abort(moe::WithFailureInfo(absl::CancelledError(message), info));
    return absl::OkStatus();
  });
}

moe_status* moe_engine_shutdown(moe_engine* engine) {
  return Call("engine", engine, [&]() -> absl::Status {
    if (engine->state->shut_down) return absl::OkStatus();
    engine->state->shut_down = true;
    return engine->state->transport->Shutdown();
  });
}

void moe_engine_destroy(moe_engine* engine) { moe::capi::Destroy(engine); }

}  // extern "C"
