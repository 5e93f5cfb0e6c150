#include "core/device/cpu/thread_pool.h"

namespace moe {
namespace {

// Some microseconds: longer than the gap between two operations of one layer, shorter than what a rank that shares
// the core would miss.
constexpr int kSpins = 400;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  workers_.reserve(threads > 1 ? threads - 1 : 0);
  for (int worker = 1; worker < threads; ++worker) workers_.emplace_back([this, worker] { WorkerMain(worker); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_.store(true);
  }
  wake_.notify_all();
  for (std::thread& t : workers_) t.join();
}

void ThreadPool::Work(Region* region, int worker) {
  for (;;) {
    const int64_t task = region->next.fetch_add(1, std::memory_order_relaxed);
    if (task >= region->tasks) return;
    region->call(region->context, task, worker);
  }
}

void ThreadPool::Run(Region* region) {
  if (workers_.empty() || region->tasks <= 1) {
    for (int64_t task = 0; task < region->tasks; ++task) region->call(region->context, task, 0);
    return;
  }
  bool wake = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    region_ = region;
    opened_.store(opened_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    wake = sleeping_ > 0;
  }
  if (wake) wake_.notify_all();
  Work(region, 0);
  // No task is left: close the region to latecomers and wait for those inside.
  std::unique_lock<std::mutex> lock(mutex_);
  region_ = nullptr;
  if (inside_.load(std::memory_order_acquire) == 0) return;
  lock.unlock();
  for (int i = 0; i < kSpins; ++i) {
    if (inside_.load(std::memory_order_acquire) == 0) return;
    Pause();
  }
  lock.lock();
  caller_waits_ = true;
  done_.wait(lock, [this] { return inside_.load(std::memory_order_acquire) == 0; });
  caller_waits_ = false;
}

void ThreadPool::WorkerMain(int worker) {
  uint64_t seen = 0;
  for (;;) {
    for (int i = 0; i < kSpins; ++i) {
      if (opened_.load(std::memory_order_acquire) != seen || stop_.load(std::memory_order_relaxed)) break;
      Pause();
    }
    Region* region = nullptr;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      ++sleeping_;
      wake_.wait(lock, [&] { return opened_.load(std::memory_order_relaxed) != seen || stop_.load(std::memory_order_relaxed); });
      --sleeping_;
      if (stop_.load(std::memory_order_relaxed)) return;
      seen = opened_.load(std::memory_order_relaxed);
      region = region_;
      if (region) inside_.fetch_add(1, std::memory_order_relaxed);
    }
    if (!region) continue;   // came too late
    Work(region, worker);
    // The caller may return, and the region die, as soon as the count falls to zero; the pool itself lives on.
    std::lock_guard<std::mutex> lock(mutex_);
    inside_.fetch_sub(1, std::memory_order_release);
    if (caller_waits_) done_.notify_one();
  }
}

}  // namespace moe
