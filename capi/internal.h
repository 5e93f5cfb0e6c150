// What the files of the C API share: handles, the way in (checks, locks) and the way out (absl::Status to moe_status).
#ifndef MOE_CAPI_INTERNAL_H_
#define MOE_CAPI_INTERNAL_H_

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <new>
#include <string>

#include "capi/moe.h"
#include "core/comm/communicator.h"
#include "core/config/config.pb.h"
#include "core/device/device.h"
#include "core/model/model.h"
#include "core/topology/mesh.h"
#include "experts/registry.h"

namespace moe::capi {

// Ids of the mesh's own groups lie below.
constexpr int64_t kFirstUserGroup = int64_t{1} << 32;

// NULL for OK.
moe_status* ToStatus(const absl::Status& s);
char* ToString(const std::string& s);

// What a struct that crosses the interface must satisfy: struct_size set, unknown bytes zero, no extension.
absl::Status CheckStruct(const char* name, const void* data, size_t known, size_t smallest);
// Copies as much of a caller's struct as both sides know; the rest is zero.
template <typename T>
absl::StatusOr<T> ReadStruct(const char* name, const T* given);
// Writes as much of `value` as the caller's struct holds; struct_size and extension stay the caller's.
template <typename T>
void WriteStruct(const T& value, T* out);

absl::Status NullArgument(const char* name);

// One rank: everything that handles made from it share.
struct EngineState {
  config::Config config;
  int64_t rank = 0, world_size = 1;
  LogSink log;
  std::unique_ptr<Device> device;
  std::unique_ptr<Registry> modules;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Mesh> mesh;
  std::shared_ptr<Communicator> world, batch, ep, edp;   // this rank's groups of the mesh; the size may be 1
  pid_t pid = 0;
  std::mutex in_use;
  bool shut_down = false;
};

// The communicator, or null for a group of this rank alone: the engine then moves nothing.
inline Communicator* Several(const std::shared_ptr<Communicator>& c) { return c && c->size() > 1 ? c.get() : nullptr; }

// Fills a parameter's view.
void DescribeParameter(const Param& param, const ParamPiece& piece, moe_parameter* out);

// Runs f with the engine held. A second thread, a forked child, an exception: an error instead.
template <typename F>
absl::Status Enter(const std::shared_ptr<EngineState>& state, F f);
// The same for what has no engine.
template <typename F>
moe_status* Catch(F f);
pid_t CurrentProcess();

}  // namespace moe::capi

struct moe_engine { std::shared_ptr<moe::capi::EngineState> state; };
struct moe_group {
  std::shared_ptr<moe::capi::EngineState> state;
  std::shared_ptr<moe::Communicator> comm;
};
struct moe_config { moe::config::Config config; };

// ---- templates
namespace moe::capi {

template <typename T>
absl::StatusOr<T> ReadStruct(const char* name, const T* given) {
  if (given == nullptr) return NullArgument(name);
  MOE_RETURN_IF_ERROR(CheckStruct(name, given, sizeof(T), 2 * sizeof(void*)));
  T out{};
  const size_t n = given->struct_size < sizeof(T) ? given->struct_size : sizeof(T);
  __builtin_memcpy(&out, given, n);
  return out;
}

template <typename T>
void WriteStruct(const T& value, T* out) {
  const size_t size = out->struct_size < sizeof(T) ? out->struct_size : sizeof(T);
  const size_t head = 2 * sizeof(void*);
  if (size > head) __builtin_memcpy(reinterpret_cast<char*>(out) + head, reinterpret_cast<const char*>(&value) + head, size - head);
}

template <typename F>
moe_status* Catch(F f) {
  try {
    return ToStatus(f());
  } catch (const std::bad_alloc&) {
    return ToStatus(absl::ResourceExhaustedError("out of memory"));
  } catch (const std::exception& e) {
    return ToStatus(absl::InternalError(e.what()));
  } catch (...) {
    return ToStatus(absl::InternalError("unknown exception"));
  }
}

template <typename F>
absl::Status Enter(const std::shared_ptr<EngineState>& state, F f) {
  if (state->pid != CurrentProcess()) return FailedPrecondition("this engine was made before fork(); a child process must make its own");
  std::unique_lock<std::mutex> lock(state->in_use, std::try_to_lock);
  if (!lock.owns_lock()) return FailedPrecondition("another thread is inside this engine; its handles are used by one thread at a time");
  return f();
}

}  // namespace moe::capi
#endif  // MOE_CAPI_INTERNAL_H_
