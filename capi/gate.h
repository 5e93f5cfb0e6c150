// One thread at a time: who is inside an engine, and what becomes of a handle that is destroyed meanwhile.
//
// Garbage-collected languages destroy handles from any thread, at any time, even from a log callback in the middle of a call. So a
// destroyed handle is freed at once when nobody is inside, else by the thread that is inside when it leaves.
#ifndef MOE_CAPI_GATE_H_
#define MOE_CAPI_GATE_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "core/base/status.h"

namespace moe::capi {

struct EngineState;

// What a handle is made from an engine: keeps the engine's state alive.
struct Handle {
  explicit Handle(std::shared_ptr<EngineState> s) : state(std::move(s)) {}
  virtual ~Handle() = default;
  std::shared_ptr<EngineState> state;   // set once
  Handle* next = nullptr;   // of those that wait to be freed
};

class Gate {
 public:
  ~Gate();
  // OK: the caller is inside until Leave. FAILED_PRECONDITION when another thread, or an outer call of this one, is.
  absl::Status Enter();
  // Waits for the thread inside. False: this thread is inside itself.
  bool WaitAndEnter();
  void Leave();
  // Frees the handle now or, when somebody is inside, at the end of that call. The caller keeps the gate alive.
  void Free(Handle* handle);

 private:
  static void FreeAll(Handle* list);

  std::mutex mu_;
  std::condition_variable free_;
  bool busy_ = false;
  std::thread::id inside_;
  Handle* retired_ = nullptr;
};

}  // namespace moe::capi
#endif  // MOE_CAPI_GATE_H_
