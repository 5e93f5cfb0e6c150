#include "core/plan/step_shape.h"

#include <algorithm>

namespace moe {

int64_t NumMicroBatches(const config::Config& c, int64_t stages, int64_t dp) {
  const int64_t share = (c.train().global_batch() + dp - 1) / dp, size = std::max<int64_t>(1, MicroBatchSize(c, stages, share));
  return std::max<int64_t>(1, (share + size - 1) / size);
}

bool NeedsRoutingSums(const config::Config& c) {
  return c.gate().aux_loss() != "none" && c.gate().aux_loss_coef() > 0 && c.model().num_dense_layers() < c.model().num_layers();
}

absl::StatusOr<StepShape> StepShapeOf(const config::Config& c, int64_t stages, int64_t micro_batches) {
  StepShape out;
  MOE_ASSIGN_OR_RETURN(out.schedule.kind, ParseScheduleKind(c.pipeline().kind()));
  out.schedule.stages = stages;
  out.schedule.virtual_stages = VirtualStages(c, stages);
  out.schedule.micro_batches = micro_batches;
  out.needs_routing_sums = NeedsRoutingSums(c);
  out.tied_embeddings = c.model().tie_embeddings();
  return out;
}

}  // namespace moe
