// Cores that this process may run on: fewer than the machine has under taskset, a batch system or a container's cpuset.
#ifndef MOE_CAPI_CORES_H_
#define MOE_CAPI_CORES_H_

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <thread>

namespace moe::capi {

inline int64_t UsableCores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(CPU_COUNT(&set), 1);
  return std::max<int64_t>(std::thread::hardware_concurrency(), 1);   // more than 1024 cores
}

}  // namespace moe::capi
#endif  // MOE_CAPI_CORES_H_
