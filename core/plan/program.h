// What every rank does in one step, in order: made once from the schedule and the layers, executed by the engine and by
// nothing else, checked before launch (check.h).
//
// All ranks of a pipeline stage have the same program: the collectives of a layer stay inside the stage, edges between stages
// are exchanges on the pipeline group, and what all stages share (routing sums of a pooled loss, tied embeddings, metrics, the
// norm) comes at points that every rank passes unconditionally.
#ifndef MOE_CORE_PLAN_PROGRAM_H_
#define MOE_CORE_PLAN_PROGRAM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/plan/schedule.h"

namespace moe {

enum class OpKind {
  kBegin,             // ranks agree on the batch: number of labels, micro-batches, a failing rank
  kRoute,             // forward of a micro-batch that only counts routing (nothing is kept for backward)
  kForward,
  kBackward,          // gradients of inputs and weights
  kBackwardInput,     // of inputs only
  kBackwardWeight,    // of weights, from what kBackwardInput left
  kExchange,          // sends and receives between stages, posted together
  kReduceRouting,     // counts and probabilities of the whole batch, for the balancing loss
  kReduceDense,       // gradients over the ranks that split the batch
  kReduceReplicated,  // gradients of what every rank of the stage holds
  kReduceExpert,      // gradients over the copies of the same experts
  kReduceTied,        // gradients of an embedding that the last stage shares with the first
  kReduceMetrics,     // losses, counts
  kReduceNorm,        // each element of the gradient once
  kUpdate,
};
const char* Name(OpKind kind);

// One message of a micro-batch over the boundary between virtual stages `boundary` and `boundary` + 1: an activation on its way
// up or a gradient on its way down. The pair and the direction are part of its tag, so that with two stages the message to the
// next and the message to the previous stage (the same peer) are never mixed up.
struct Transfer {
  bool send = false;
  bool gradient = false;
  int64_t boundary = 0;   // global index of the lower virtual stage
  int64_t micro = 0;
  int64_t peer = 0;       // stage at the other end
  bool operator==(const Transfer& o) const { return send == o.send && gradient == o.gradient && boundary == o.boundary && micro == o.micro && peer == o.peer; }
};
// The same on both ends, distinct for all messages of a step; those of kRoute have the tags of the forwards, from which
// kReduceRouting, that all stages pass together, keeps them apart.
uint32_t Tag(const Transfer& t, int64_t micro_batches, int64_t virtual_stages_in_all);

struct Op {
  OpKind kind = OpKind::kBegin;
  int64_t chunk = -1;                 // global index of the virtual stage: computing ops
  int64_t micro = -1;                 // micro-batch: computing ops
  std::vector<Transfer> transfers;    // kExchange, in the order in which they are posted
};
using StageProgram = std::vector<Op>;

// What the program depends on besides the schedule.
struct StepShape {
  ScheduleShape schedule;
  // The balancing loss of the whole batch: its sums must be known before the first backward. Where the schedule has backwards
  // before the last forward, all micro-batches are routed once beforehand.
  bool needs_routing_sums = false;
  bool tied_embeddings = false;
};

// Programs of all stages for one training step. INVALID_ARGUMENT as MakeSchedule.
absl::StatusOr<std::vector<StageProgram>> MakeStepProgram(const StepShape& shape);
// Forward of all micro-batches and nothing else (evaluation, logits): kForward and kExchange. Virtual stages as the model has
// them; any schedule kind.
absl::StatusOr<std::vector<StageProgram>> MakeForwardProgram(const ScheduleShape& shape);

// "F3" , "B1.2" (virtual stage 2), "exchange {send activation 3 to stage 1}": for pictures and messages.
std::string ToString(const Op& op);
std::string ToString(const Transfer& t);   // "send activation 3 to stage 1"

}  // namespace moe
#endif  // MOE_CORE_PLAN_PROGRAM_H_
