// One rank: what every handle made from an engine shares, and the way into it.
#ifndef MOE_CAPI_ENGINE_STATE_H_
#define MOE_CAPI_ENGINE_STATE_H_

#include <array>
#include <memory>
#include <mutex>

#include "absl/time/time.h"
#include "capi/boundary.h"
#include "capi/gate.h"
#include "core/base/log.h"
#include "core/comm/communicator.h"
#include "core/config/config.pb.h"
#include "core/device/device.h"
#include "core/topology/mesh.h"
#include "experts/registry.h"
#include "transport/fork_guard.h"
#include "transport/inproc/inproc.h"

namespace moe::capi {

// Ids of groups: the caller's are below, the engine's own from here on.
constexpr int64_t kFirstOwnGroup = int64_t{1} << 32;

struct EngineState {
  config::Config config;
  int64_t rank = 0, world_size = 1;
  LogSink log;
  std::unique_ptr<Device> device;
  std::unique_ptr<Registry> modules;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Mesh> mesh;
  std::shared_ptr<Communicator> world;
  std::array<std::shared_ptr<Communicator>, kGroupKinds.size()> groups;   // this rank's, by GroupKind; the size may be 1
  const std::shared_ptr<Communicator>& group(GroupKind kind) const { return groups[static_cast<size_t>(kind)]; }
  bool shut_down = false;
  ForkGuard fork_guard;
  Gate gate;
};

// Runs f inside the engine. From a second thread or a forked child: an error instead.
template <typename F>
absl::Status Enter(const std::shared_ptr<EngineState>& given, F f) {
  const std::shared_ptr<EngineState> state = given;   // the handle may be destroyed meanwhile
  if (state->fork_guard.in_child()) return FailedPrecondition("this handle was made before fork(); connections and threads stay with the parent: a child process makes its own engine");
  MOE_RETURN_IF_ERROR(state->gate.Enter());
  struct Leaver { Gate* gate; ~Leaver() { gate->Leave(); } } leaver{&state->gate};
  return f();
}

// A function of a handle.
template <typename H, typename F>
moe_status* Call(const char* name, H* handle, F f) noexcept {
  return Catch([&]() -> absl::Status { return handle == nullptr ? NullArgument(name) : Enter(handle->state, f); });
}

// Never fails. In a forked child the parent's threads are gone and its connections must not be touched: the handle is left.
inline void Destroy(Handle* handle) noexcept {
  if (handle == nullptr) return;
  const std::shared_ptr<EngineState> state = handle->state;
  if (!state->fork_guard.in_child()) state->gate.Free(handle);
}

}  // namespace moe::capi

struct moe_config { moe::config::Config config; };

struct moe_inproc {
  explicit moe_inproc(int64_t n) : size(n) {}
  // The world that the ranks share; the first one that asks gives its deadline.
  std::shared_ptr<moe::InprocWorld> World(absl::Duration timeout);
  const int64_t size;
  moe::ForkGuard fork_guard;
  std::mutex mu;
  std::shared_ptr<moe::InprocWorld> world;
};

struct moe_engine final : moe::capi::Handle { using Handle::Handle; };

struct moe_group final : moe::capi::Handle {
  moe_group(std::shared_ptr<moe::capi::EngineState> s, std::shared_ptr<moe::Communicator> c) : Handle(std::move(s)), comm(std::move(c)) {}
  const std::shared_ptr<moe::Communicator> comm;
};

#endif  // MOE_CAPI_ENGINE_STATE_H_
