// When every operation of every stage starts and ends: the step's programs played against the clock. Ops of a stage run one after
// the other; an exchange ends when what it receives has arrived (sends go on by themselves); ops that all stages share wait for
// the last stage. Where ranks share cores, computing ops slow each other down.
#ifndef MOE_CORE_PLAN_REPORT_SIMULATE_H_
#define MOE_CORE_PLAN_REPORT_SIMULATE_H_

#include <functional>

#include "core/plan/program.h"
#include "core/plan/report/machine.h"

namespace moe {

struct Span { double start = 0, end = 0; };

struct Timeline {
  std::vector<std::vector<Span>> stages;   // as the programs
  double seconds = 0;                      // of the step
  // Share of the stages' time without computing, from the first forward of a micro-batch that is kept to the last backward.
  double bubble = 0;
};

bool IsCompute(OpKind kind);   // routes, forwards and backwards
bool IsBackward(OpKind kind);

// `seconds` of an op on a stage (an exchange: 0); `transfer` of one message; `ranks_per_stage` for shared cores. INTERNAL when a
// stage waits for ever: the programs were not checked.
absl::StatusOr<Timeline> Simulate(const std::vector<StageProgram>& programs, const std::function<double(int64_t stage, const Op& op)>& seconds, double transfer, const Machine& machine, int64_t ranks_per_stage);

// Idle share of the ideal schedule: (P-1)(F+B) of P stages alike, /v interleaved, less 2W with zero_bubble.
double IdealBubble(const ScheduleShape& shape, double forward, double backward, double backward_weight);

}  // namespace moe
#endif  // MOE_CORE_PLAN_REPORT_SIMULATE_H_
