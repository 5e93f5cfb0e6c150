// What a pipeline stage computes as a unit: consecutive layers, and a micro-batch on its way through them. The stage runner
// executes any implementation: the transformer's (model_chunk.h), or one that only takes time (measurements of schedules).
#ifndef MOE_CORE_MODEL_STAGE_CHUNK_H_
#define MOE_CORE_MODEL_STAGE_CHUNK_H_

#include <functional>
#include <vector>

#include "core/model/decoder_layer.h"
#include "core/plan/schedule.h"

namespace moe {

// Tensors live in the arena of the pass; hidden states are [share_rows, d_model] (TokenLayout).
struct ChunkPass {
  TokenLayout layout;
  PassInputs in;
  TensorView x_TD;         // what the chunk reads; made by the chunk when it starts with the embedding
  TensorView y_TD;         // what it makes; of the last chunk: after the final norm, then the gradient of that
  TensorView dy_TD, dx_TD; // gradients of y and x
  std::vector<DecoderLayer::Saved> layers;
  TensorView before_norm_TD, rstd_T;                        // of the final norm
  std::vector<std::function<absl::Status()>> weight_grads;  // left for later
};

class StageChunk {
 public:
  virtual ~StageChunk() = default;
  virtual const Chunk& place() const = 0;
  virtual DType dtype() const = 0;
  virtual int64_t d_model() const = 0;
  // y from x. Without `keep` the pass keeps y alone. pass->layout is set.
  virtual absl::Status Forward(const ModuleContext& ctx, RotaryCache* rotary, bool keep, ChunkPass* pass, RoutingSums* sums) = 0;
  // Of the last chunk, after Forward: the sum of -log p over labels; with `backward` pass->dy_TD is the gradient of grad_scale
  // times that sum, in y's place.
  virtual absl::StatusOr<double> Loss(const ModuleContext& ctx, bool backward, double grad_scale, ChunkPass* pass) = 0;
  // Of the last chunk, after Forward: see VocabularyTable::Logits.
  virtual absl::Status Logits(const ModuleContext& ctx, const ChunkPass& pass, const std::vector<int32_t>& wanted, TensorView* logits) = 0;
  // dx from dy (destroyed). aux_LE [MoE layers of the model, E] optional. With `split` the gradients of weights are left in
  // pass->weight_grads, to be run later.
  virtual absl::Status Backward(const ModuleContext& ctx, bool split, In aux_LE, double z_coef, ChunkPass* pass) = 0;
};

}  // namespace moe
#endif  // MOE_CORE_MODEL_STAGE_CHUNK_H_
