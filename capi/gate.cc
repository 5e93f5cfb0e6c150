#include "capi/gate.h"

namespace moe::capi {

Gate::~Gate() { FreeAll(retired_); }

absl::Status Gate::Enter() {
  std::lock_guard<std::mutex> lock(mu_);
  if (busy_ && inside_ == std::this_thread::get_id())
    return FailedPrecondition("this thread is inside a function of the same engine already: a log callback must not call the engine's functions");
  if (busy_) return FailedPrecondition("another thread is inside a function of the same engine; an engine and all that was made from it are used by one thread at a time");
  busy_ = true;
  inside_ = std::this_thread::get_id();
  return absl::OkStatus();
}

bool Gate::WaitAndEnter() {
  std::unique_lock<std::mutex> lock(mu_);
  if (busy_ && inside_ == std::this_thread::get_id()) return false;
  free_.wait(lock, [&] { return !busy_; });
  busy_ = true;
  inside_ = std::this_thread::get_id();
  return true;
}

void Gate::Leave() {
  std::unique_lock<std::mutex> lock(mu_);
  while (retired_ != nullptr) {   // still inside: freeing may use the engine
    Handle* list = retired_;
    retired_ = nullptr;
    lock.unlock();
    FreeAll(list);
    lock.lock();
  }
  busy_ = false;
  inside_ = std::thread::id();
  free_.notify_one();
}

void Gate::Free(Handle* handle) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (busy_) {
      handle->next = retired_;
      retired_ = handle;
      return;
    }
    busy_ = true;
    inside_ = std::this_thread::get_id();
  }
  FreeAll(handle);
  Leave();
}

void Gate::FreeAll(Handle* list) {
  while (list != nullptr) {
    Handle* next = list->next;
    delete list;
    list = next;
  }
}

}  // namespace moe::capi
