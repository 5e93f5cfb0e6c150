// Fork-join workers of one device. A parallel region is a number of tasks that were cut by shape alone; which worker
// runs a task is decided at run time by one atomic counter, so results never depend on the number of workers.
//
// The caller takes part, and a worker that wakes up late never delays it: a region ends when its tasks are done and
// those workers that joined it have left. Workers spin for some microseconds only, because ranks x threads may exceed
// the cores of the machine.
#ifndef MOE_CORE_DEVICE_CPU_THREAD_POOL_H_
#define MOE_CORE_DEVICE_CPU_THREAD_POOL_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace moe {

class ThreadPool {
 public:
  // `threads` workers (>= 1), the caller of ParallelFor being one of them.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls fn(task) or fn(task, worker) for every task in [0, tasks), lower tasks first; worker is in [0, threads()) and
  // no two tasks run at once under the same worker, so that it may index scratch memory. Returns when all have
  // returned. fn must not throw and must not call ParallelFor. One caller at a time. Allocates nothing.
  template <typename Fn>
  void ParallelFor(int64_t tasks, Fn&& fn) {
    using F = std::remove_reference_t<Fn>;
    Region region;
    region.tasks = tasks;
    region.context = const_cast<void*>(static_cast<const void*>(&fn));
    region.call = [](void* context, int64_t task, int worker) {
      if constexpr (std::is_invocable_v<F&, int64_t, int>) {
        (*static_cast<F*>(context))(task, worker);
      } else {
        (void)worker;
        (*static_cast<F*>(context))(task);
      }
    };
    Run(&region);
  }

 private:
  struct Region {
    void (*call)(void* context, int64_t task, int worker) = nullptr;
    void* context = nullptr;
    int64_t tasks = 0;
    std::atomic<int64_t> next{0};
  };

  void Run(Region* region);
  static void Work(Region* region, int worker);
  void WorkerMain(int worker);

  std::mutex mutex_;
  std::condition_variable wake_;          // workers: a region has opened, or stop
  std::condition_variable done_;          // caller: the last worker has left
  Region* region_ = nullptr;              // guarded by mutex_; null while no region is open
  std::atomic<uint64_t> opened_{0};       // regions opened so far; written under mutex_
  std::atomic<int> inside_{0};            // workers inside the open region; raised under mutex_
  int sleeping_ = 0;                      // guarded by mutex_
  bool caller_waits_ = false;             // guarded by mutex_
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace moe
#endif  // MOE_CORE_DEVICE_CPU_THREAD_POOL_H_
