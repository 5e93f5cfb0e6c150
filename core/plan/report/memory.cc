#include "core/plan/report/memory.h"

#include <algorithm>

#include "core/plan/loss_rows.h"

namespace moe {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

int64_t OptimizerStates(const config::OptimizerConfig& c) { return c.kind() == "adamw" ? 2 : c.momentum() > 0 ? 1 : 0; }

RankMemory MemoryOf(const config::Config& c, const StageProgram& program, const std::vector<Chunk>& chunks, const StepCosts& costs, const ParameterCounts& rank) {
  const double element = static_cast<double>(ElementBytes(c.model())), parameters = static_cast<double>(rank.total());
  RankMemory out;
  out.weights = out.gradients = parameters * element;
  out.optimizer = parameters * element * static_cast<double>(OptimizerStates(c.optimizer()));
  double kept = 0;
  int64_t micro = 0;
  for (const Op& op : program) {
    const bool forward = op.kind == OpKind::kForward, release = op.kind == OpKind::kBackward || op.kind == OpKind::kBackwardWeight;
    if (!forward && !release) continue;
    const Chunk& chunk = chunks[op.chunk];
    const double saved = costs.SavedBytes(chunk);
    if (forward) {
      kept += saved;
      ++micro;
      // While it runs, a layer needs about as much again as it keeps, the head a block of logits.
      const double layer = chunk.num_layers > 0 ? saved / static_cast<double>(chunk.num_layers) : 0;
      const double logits = chunk.head ? static_cast<double>(LossRows(c.model().vocab_size(), costs.tp()) * CeilDiv(c.model().vocab_size(), costs.tp())) * element : 0;
      out.scratch = std::max({out.scratch, layer, logits});
    } else {
      kept -= saved;
      --micro;
    }
    out.activations = std::max(out.activations, kept);
    out.micro_batches = std::max(out.micro_batches, micro);
  }
  return out;
}

}  // namespace moe
