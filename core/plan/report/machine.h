// What a prediction needs to know of the machine: a few rates that can be looked up or measured (measure.h).
#ifndef MOE_CORE_PLAN_REPORT_MACHINE_H_
#define MOE_CORE_PLAN_REPORT_MACHINE_H_

#include <cstdint>
#include <string>

namespace moe {

// The defaults are round numbers of one CPU socket per rank (32 cores, DDR5) on a 200 Gbit/s network: for comparing layouts, not
// for promises.
struct Machine {
  double gflops = 1500;            // of a rank in matrix products, float32
  double memory_gbs = 200;         // GB/s of a rank, reads and writes together
  double latency_us = 5;           // of one message
  double message_us = 0.5;         // more for each further peer of a collective
  double bandwidth_gbs = 25;       // GB/s of a rank to the others, each direction
  // Not 0: all ranks share this many cores of one machine, `threads` each: where more threads compute than there are cores,
  // they take turns.
  int64_t shared_cores = 0;
  int64_t threads = 1;
  std::string source = "assumed: 1500 GFLOP/s, 200 GB/s memory, 25 GB/s and 5 us network per rank";
};

}  // namespace moe
#endif  // MOE_CORE_PLAN_REPORT_MACHINE_H_
