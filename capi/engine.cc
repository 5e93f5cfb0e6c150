#include <algorithm>
#include <thread>

#include "capi/internal.h"
#include "core/comm/agree.h"
#include "core/config/config_io.h"
#include "core/config/validate.h"
#include "nlohmann/json.hpp"
#include "transport/inproc/inproc.h"
#include "transport/self.h"
#include "transport/ucx/ucx.h"

using moe::capi::Catch;
using moe::capi::Enter;
using moe::capi::EngineState;
using moe::capi::NullArgument;
using moe::capi::ToString;

struct moe_inproc {
  std::shared_ptr<moe::InprocWorld> world;
  int64_t size;
};

namespace {

absl::StatusOr<std::unique_ptr<moe::Device>> MakeDevice(const moe::config::Config& c, int64_t local_ranks) {
  if (c.device() == "reference") return moe::MakeReferenceDevice();
  const int64_t cores = std::max<int64_t>(std::thread::hardware_concurrency(), 1);
  const int64_t threads = c.threads() > 0 ? c.threads() : std::max<int64_t>(1, cores / std::max<int64_t>(local_ranks, 1));
  return moe::MakeCpuDevice(static_cast<int>(threads));
}

absl::StatusOr<std::unique_ptr<moe::Transport>> MakeTransport(const moe::config::Config& c, const moe_engine_options& o, const moe::LogSink& log) {
  if (o.world_size == 1) return moe::MakeSelfTransport();
  if (c.transport().kind() == "inproc") {
    if (o.inproc == nullptr)
      return moe::InvalidArgument("transport.kind is inproc and the world has ", o.world_size, " ranks, but options.inproc is NULL; make one with moe_inproc_create and give it to the engine of every thread");
    if (o.inproc->size != o.world_size) return moe::InvalidArgument("options.world_size is ", o.world_size, ", the inproc world has ", o.inproc->size, " ranks");
    return moe::MakeInprocTransport(o.inproc->world, o.rank);
  }
  moe::RendezvousOptions r;
  r.host = o.host ? o.host : c.transport().host();
  r.port = static_cast<int>(o.port ? o.port : c.transport().port());
  r.job_id = o.job_id ? o.job_id : "moe";
  r.rank = o.rank;
  r.world_size = o.world_size;
  r.timeout = absl::Seconds(c.transport().timeout_s());
  r.build_version = absl::StrCat(MOE_VERSION_MAJOR, ".", MOE_VERSION_MINOR, ".", MOE_VERSION_PATCH);
  if (r.port <= 0) return moe::InvalidArgument("transport.port is ", r.port, "; a job of ", o.world_size, " ranks needs the port of rank 0's rendezvous");
  moe::UcxOptions u;
  u.library = c.transport().ucx_library();
  u.tls = c.transport().ucx_tls();
  u.net_device = c.transport().net_device();
  return moe::MakeUcxTransport(u, r, log);
}

absl::StatusOr<std::shared_ptr<moe::Communicator>> Group(EngineState* s, moe::GroupKind kind) {
  const std::vector<int64_t> members = s->mesh->Group(kind, s->rank);
  MOE_ASSIGN_OR_RETURN(std::shared_ptr<moe::Communicator> c, s->transport->CreateGroup(s->mesh->GroupId(kind, s->rank), members));
  return c;
}

absl::Status Build(const moe_engine_options& o, EngineState* s) {
  s->modules = moe::MakeDefaultRegistry();
  MOE_RETURN_IF_ERROR(moe::ValidateConfig(s->config, {s->modules->GateNames(), s->modules->ExpertNames(), s->modules->PartitionNames()}));
  MOE_ASSIGN_OR_RETURN(moe::Mesh mesh, moe::MeshFromConfig(o.world_size, s->config.mesh(), s->config.model().num_global_experts()));
  s->mesh = std::make_unique<moe::Mesh>(std::move(mesh));
  MOE_ASSIGN_OR_RETURN(auto partition, s->modules->MakePartition(s->config.partition()));
  MOE_RETURN_IF_ERROR(partition->Place(s->config.model().num_global_experts(), s->mesh->size(moe::Axis::kEp)).status());
  MOE_ASSIGN_OR_RETURN(s->device, MakeDevice(s->config, o.local_world_size > 0 ? o.local_world_size : o.world_size));
  MOE_ASSIGN_OR_RETURN(s->transport, MakeTransport(s->config, o, s->log));
  // The agreed order: the same on every rank.
  MOE_ASSIGN_OR_RETURN(s->world, Group(s, moe::GroupKind::kStage));
  MOE_ASSIGN_OR_RETURN(s->batch, Group(s, moe::GroupKind::kDpCp));
  MOE_ASSIGN_OR_RETURN(s->ep, Group(s, moe::GroupKind::kEp));
  MOE_ASSIGN_OR_RETURN(s->edp, Group(s, moe::GroupKind::kEdp));
  // Ranks with other configurations would part ways somewhere later.
  const std::string mine = moe::ConfigToText(s->config, true);
  MOE_ASSIGN_OR_RETURN(std::string first, moe::BroadcastString(s->world.get(), mine, 0));
  absl::Status same;
  if (first != mine) {
    size_t at = 0;
    while (at < first.size() && at < mine.size() && first[at] == mine[at]) ++at;
    const auto line = [&](const std::string& t) {
      const size_t begin = t.rfind('\n', at) == std::string::npos ? 0 : t.rfind('\n', at) + 1;
      return t.substr(begin, t.find('\n', begin) - begin);
    };
    same = moe::InvalidArgument("the configuration differs from rank 0's: '", line(mine), "' here, '", line(first), "' there; give all ranks the same");
  }
  return moe::Agree(s->world.get(), same);
}

}  // namespace

extern "C" {

moe_status* moe_inproc_create(int64_t world_size, moe_inproc** world) {
  return Catch([&]() -> absl::Status {
    if (world == nullptr) return NullArgument("world");
    if (world_size < 1 || world_size > 4096) return moe::InvalidArgument("world_size is ", world_size, ", must be 1 to 4096");
    *world = new moe_inproc{std::make_shared<moe::InprocWorld>(world_size), world_size};
    return absl::OkStatus();
  });
}
void moe_inproc_destroy(moe_inproc* world) { delete world; }

moe_status* moe_engine_create(const moe_config* config, const moe_engine_options* options, moe_engine** engine) {
  return Catch([&]() -> absl::Status {
    if (config == nullptr) return NullArgument("config");
    if (engine == nullptr) return NullArgument("engine");
    MOE_ASSIGN_OR_RETURN(moe_engine_options o, moe::capi::ReadStruct("options", options));
    if (o.world_size == 0) o.world_size = 1;
    if (o.world_size < 1) return moe::InvalidArgument("options.world_size is ", o.world_size, ", must be at least 1");
    if (o.rank < 0 || o.rank >= o.world_size) return moe::InvalidArgument("options.rank is ", o.rank, ", outside the world of ", o.world_size);
    auto s = std::make_shared<EngineState>();
    s->config = config->config;
    s->config.set_ranks(static_cast<int32_t>(o.world_size));
    s->rank = o.rank;
    s->world_size = o.world_size;
    s->pid = moe::capi::CurrentProcess();
    if (o.log) s->log = [fn = o.log, user = o.log_user_data](moe::LogLevel level, const std::string& text) { fn(user, static_cast<int32_t>(level), text.c_str()); };
    MOE_RETURN_IF_ERROR(Build(o, s.get()));
    *engine = new moe_engine{std::move(s)};
    return absl::OkStatus();
  });
}

int64_t moe_engine_rank(const moe_engine* engine) { return engine ? engine->state->rank : -1; }
int64_t moe_engine_world_size(const moe_engine* engine) { return engine ? engine->state->world_size : -1; }

moe_status* moe_engine_describe(moe_engine* engine, char** json) {
  return Catch([&]() -> absl::Status {
    if (engine == nullptr) return NullArgument("engine");
    if (json == nullptr) return NullArgument("json");
    return Enter(engine->state, [&]() -> absl::Status {
      EngineState& s = *engine->state;
      nlohmann::ordered_json j;
      j["rank"] = s.rank;
      j["world_size"] = s.world_size;
      j["device"] = {{"name", s.device->name()}, {"threads", s.device->num_threads()}, {"details", s.device->Describe()}};
      j["transport"] = s.transport->name();
      j["peers"] = s.transport->DescribePeers();
      for (moe::Axis a : {moe::Axis::kDp, moe::Axis::kTp, moe::Axis::kPp, moe::Axis::kCp, moe::Axis::kEp, moe::Axis::kEtp, moe::Axis::kEdp})
        j["mesh"][moe::Name(a)] = {{"size", s.mesh->size(a)}, {"coordinate", s.mesh->coordinate(s.rank, a)}};
      *json = ToString(j.dump());
      return absl::OkStatus();
    });
  });
}

moe_status* moe_engine_measure_peak(moe_engine* engine, double* gflops) {
  return Catch([&]() -> absl::Status {
    if (engine == nullptr) return NullArgument("engine");
    if (gflops == nullptr) return NullArgument("gflops");
    return Enter(engine->state, [&]() -> absl::Status {
      MOE_ASSIGN_OR_RETURN(*gflops, engine->state->device->MeasurePeakGflops());
      return absl::OkStatus();
    });
  });
}

moe_status* moe_engine_abort(moe_engine* engine, const char* message) {
  return Catch([&]() -> absl::Status {
    if (engine == nullptr) return NullArgument("engine");
    if (message == nullptr) return NullArgument("message");
    moe::FailureInfo info;
    info.origin_rank = engine->state->rank;
    engine->state->transport->Abort(moe::WithFailureInfo(absl::CancelledError(message), info));
    return absl::OkStatus();
  });
}

moe_status* moe_engine_shutdown(moe_engine* engine) {
  return Catch([&]() -> absl::Status {
    if (engine == nullptr) return NullArgument("engine");
    return Enter(engine->state, [&]() -> absl::Status {
      if (engine->state->shut_down) return absl::OkStatus();
      engine->state->shut_down = true;
      return engine->state->transport->Shutdown();
    });
  });
}

void moe_engine_destroy(moe_engine* engine) { delete engine; }

}  // extern "C"
