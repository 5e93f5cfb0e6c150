#include <algorithm>
#include <chrono>

#include "core/device/cpu/cpu_device.h"

namespace moe {

// All workers run the kernel of independent fused multiply-adds at the same time; the best of several runs, because a
// shared machine only ever looks slower than it is.
absl::StatusOr<double> CpuDevice::MeasurePeakGflops() {
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kRounds = 200000;
  constexpr int kRuns = 8;
  constexpr int kTasksPerWorker = 8;
  const int64_t tasks = static_cast<int64_t>(kTasksPerWorker) * pool_.threads();
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    int64_t flops = 0;
    const auto start = Clock::now();
    pool_.ParallelFor(tasks, [&](int64_t task) {
      const int64_t n = kernels_.peak.fma_chains(kRounds);
      if (task == 0) flops = n * tasks;
    });
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (seconds > 0) best = std::max(best, 1e-9 * static_cast<double>(flops) / seconds);
  }
  return best;
}

}  // namespace moe
