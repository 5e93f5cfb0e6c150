// Bytes that a rank of a stage holds at most: what stays (weights, gradients, optimizer) and what the schedule keeps of the
// micro-batches between their forward and their backward.
#ifndef MOE_CORE_PLAN_REPORT_MEMORY_H_
#define MOE_CORE_PLAN_REPORT_MEMORY_H_

#include "core/plan/report/costs.h"

namespace moe {

struct RankMemory {
  double weights = 0, gradients = 0, optimizer = 0;
  double activations = 0;         // at the peak; an estimate from the shapes, with even routing
  double scratch = 0;             // of the op that needs most while it runs
  int64_t micro_batches = 0;      // forwards of the stage whose activations are kept, at most (virtual stages count one by one)
  double peak() const { return weights + gradients + optimizer + activations + scratch; }
};

int64_t OptimizerStates(const config::OptimizerConfig& c);   // numbers kept for each parameter

RankMemory MemoryOf(const config::Config& c, const StageProgram& program, const std::vector<Chunk>& chunks, const StepCosts& costs, const ParameterCounts& rank);

}  // namespace moe
#endif  // MOE_CORE_PLAN_REPORT_MEMORY_H_
