#include "capi/open_engine.h"

#include <algorithm>

#include "capi/collective.h"
#include "capi/cores.h"
#include "core/comm/agree.h"
#include "core/config/config_io.h"
#include "core/config/validate.h"
#include "core/plan/validate.h"
#include "transport/self.h"
#include "transport/ucx/ucx.h"

std::shared_ptr<moe::InprocWorld> moe_inproc::World(absl::Duration timeout) {
  std::lock_guard<std::mutex> lock(mu);
  if (!world) world = std::make_shared<moe::InprocWorld>(size, timeout);
  return world;
}

namespace moe::capi {
namespace {

absl::Status CheckOptions(const config::Config& c, const moe_engine_options& o) {
  if (o.world_size < 1 || o.world_size > 65536) return InvalidArgument("options.world_size is ", o.world_size, ", must be 1 to 65536");
  if (o.rank < 0 || o.rank >= o.world_size) return InvalidArgument("options.rank is ", o.rank, ", must be 0 to ", o.world_size - 1, " (options.world_size is ", o.world_size, ")");
  if (o.port < 0 || o.port > 65535) return InvalidArgument("options.port is ", o.port, ", must be 0 to 65535");
  if (o.local_world_size < 0 || o.local_world_size > o.world_size) return InvalidArgument("options.local_world_size is ", o.local_world_size, ", must be 0 to options.world_size, which is ", o.world_size);
  if (o.world_size == 1) return absl::OkStatus();
  if (c.transport().kind() == "inproc") {
    if (o.inproc == nullptr)
      return InvalidArgument("transport.kind is inproc and the world has ", o.world_size, " ranks, but options.inproc is NULL; make one with moe_inproc_create and give it to the engine of every thread");
    if (o.inproc->size != o.world_size) return InvalidArgument("options.world_size is ", o.world_size, ", options.inproc was made for ", o.inproc->size, " ranks");
    if (o.inproc->fork_guard.in_child()) return FailedPrecondition("options.inproc was made before fork(); ranks of it are threads of the parent");
    return absl::OkStatus();
  }
  if (o.inproc != nullptr) return InvalidArgument("options.inproc is given, but transport.kind is ", c.transport().kind(), "; set transport.kind to inproc or leave options.inproc NULL");
  if (o.port == 0 && c.transport().port() == 0)
    return InvalidArgument("options.port and transport.port are 0; the ", o.world_size, " ranks need the port on which rank 0 waits for the others, the same on all");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Transport>> MakeTransport(const config::Config& c, const moe_engine_options& o, const LogSink& log) {
  const absl::Duration timeout = absl::Seconds(c.transport().timeout_s());
  if (o.world_size == 1) return MakeSelfTransport();
  if (c.transport().kind() == "inproc") return MakeInprocTransport(o.inproc->World(timeout), o.rank, o.flight_dir ? o.flight_dir : "");
  RendezvousOptions r;
  r.host = o.host ? o.host : c.transport().host();
  r.port = static_cast<int>(o.port ? o.port : c.transport().port());
  r.job_id = o.job_id ? o.job_id : "moe";
  r.rank = o.rank;
  r.world_size = o.world_size;
  r.timeout = timeout;
  r.build_version = absl::StrCat("libmoe ", MOE_VERSION_MAJOR, ".", MOE_VERSION_MINOR, ".", MOE_VERSION_PATCH);
  UcxOptions u;
  u.library = c.transport().ucx_library();
  u.tls = c.transport().ucx_tls();
  u.net_device = c.transport().net_device();
  if (o.flight_dir) u.flight_dir = o.flight_dir;
  return MakeUcxTransport(u, r, log);
}

// What this rank does alone: checks and the device.
absl::Status Prepare(const moe_engine_options& o, EngineState* s) {
  const config::Config& c = s->config;
  MOE_RETURN_IF_ERROR(ValidateConfig(c, *s->modules));
  MOE_RETURN_IF_ERROR(ValidateLayout(c));
  MOE_RETURN_IF_ERROR(CheckTrainable(c));
  MOE_ASSIGN_OR_RETURN(Mesh mesh, MeshFromConfig(o.world_size, c.mesh(), c.model().num_global_experts()));
  s->mesh = std::make_unique<Mesh>(std::move(mesh));
  if (c.device() == "reference") {
    s->device = MakeReferenceDevice();
    return absl::OkStatus();
  }
  const int64_t local_ranks = o.local_world_size > 0 ? o.local_world_size : o.world_size;
  const int64_t threads = c.threads() > 0 ? c.threads() : std::max<int64_t>(1, UsableCores() / local_ranks);
  MOE_ASSIGN_OR_RETURN(s->device, MakeCpuDevice(static_cast<int>(threads)));
  return absl::OkStatus();
}

// Ranks with other configurations would part ways somewhere later, in a way that nobody understands.
absl::Status CompareConfigs(EngineState* s) {
  const std::string mine = ConfigToText(s->config, true);
  MOE_ASSIGN_OR_RETURN(const std::string first, BroadcastString(s->world.get(), mine, 0));
  absl::Status same;
  if (first != mine) {
    size_t at = 0;
    while (at < first.size() && at < mine.size() && first[at] == mine[at]) ++at;
    const auto line = [&](const std::string& t) {
      const size_t before = at == 0 ? std::string::npos : t.rfind('\n', at - 1);
      const size_t begin = before == std::string::npos ? 0 : before + 1;
      return t.substr(begin, t.find('\n', begin) - begin);
    };
    same = InvalidArgument("the configuration differs from rank 0's: '", line(mine), "' here, '", line(first), "' there; give all ranks the same");
  }
  return Agree(s->world.get(), same);
}

absl::StatusOr<std::shared_ptr<Communicator>> MakeGroup(EngineState* s, GroupKind kind) {
  const std::vector<int64_t> members = s->mesh->Group(kind, s->rank);
  // The world has the first id.
  MOE_ASSIGN_OR_RETURN(std::shared_ptr<Communicator> c, s->transport->CreateGroup(kFirstOwnGroup + 1 + s->mesh->GroupId(kind, s->rank), members));
  return c;
}

absl::Status Connect(const moe_engine_options& o, const absl::Status& prepared, EngineState* s) {
  MOE_ASSIGN_OR_RETURN(s->transport, MakeTransport(s->config, o, s->log));
  std::vector<int64_t> all(o.world_size);
  for (int64_t r = 0; r < o.world_size; ++r) all[r] = r;
  MOE_ASSIGN_OR_RETURN(s->world, s->transport->CreateGroup(kFirstOwnGroup, all));
  absl::Status agreed = Agree(s->world.get(), prepared);
  if (agreed.ok()) agreed = CompareConfigs(s);
  if (!agreed.ok()) {
    (void)s->transport->Shutdown();   // in good order, so that every rank hears why
    return agreed;
  }
  for (GroupKind kind : kGroupKinds) {
    MOE_ASSIGN_OR_RETURN(s->groups[static_cast<size_t>(kind)], MakeGroup(s, kind));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<EngineState>> OpenEngine(const config::Config& config, const moe_engine_options& given) {
  moe_engine_options o = given;
  if (o.world_size == 0) o.world_size = 1;
  MOE_RETURN_IF_ERROR(CheckOptions(config, o));
  auto s = std::make_shared<EngineState>();
  s->config = config;
  s->config.set_ranks(static_cast<int32_t>(o.world_size));
  s->rank = o.rank;
  s->world_size = o.world_size;
  s->modules = MakeDefaultRegistry();
  if (o.log != nullptr)
    s->log = [log = o.log, user = o.log_user_data](LogLevel level, const std::string& text) { log(user, static_cast<int32_t>(level), text.c_str()); };
  const absl::Status prepared = Prepare(o, s.get());
  if (o.world_size == 1) MOE_RETURN_IF_ERROR(prepared);
  const absl::Status connected = Connect(o, prepared, s.get());
  if (!connected.ok()) return prepared.ok() ? connected : prepared;   // what is wrong here is more to the point
  if (o.rank == 0)
    for (const auto& warnings : {ModuleWarnings(s->config), ConfigWarnings(s->config)})
      for (const std::string& w : warnings) Log(s->log, LogLevel::kWarning, w);
  return s;
}

ModelContext ContextOf(EngineState* engine) {
  ModelContext c;
  c.device = engine->device.get();
  c.modules = engine->modules.get();
  c.world = Several(engine->world);
  for (GroupKind kind : kGroupKinds) c.ranks.Set(kind, engine->group(kind).get());
  return c;
}

}  // namespace moe::capi
