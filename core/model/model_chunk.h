// Consecutive layers of a decoder-only transformer that a pipeline stage computes as a unit; the first chunk has the embedding,
// the last one the final norm and the output head with its cross-entropy.
#ifndef MOE_CORE_MODEL_MODEL_CHUNK_H_
#define MOE_CORE_MODEL_MODEL_CHUNK_H_

#include <functional>
#include <memory>
#include <vector>

#include "core/model/decoder_layer.h"
#include "core/model/vocabulary.h"
#include "core/plan/schedule.h"

namespace moe {

class ModelChunk {
 public:
  // `first_moe`: MoE layers of the model before this chunk.
  static absl::StatusOr<std::unique_ptr<ModelChunk>> Make(const config::Config& c, const Chunk& place, const Placement& placement, const Parallel& ranks, const ModuleFactory& modules);
  // `first` is the rank's first chunk when that is another one with the embedding: tied embeddings are one table then.
  absl::Status DeclareParams(ParamStore* store, const ModelChunk* first);

  const Chunk& place() const { return place_; }
  DType dtype() const { return dtype_; }
  int64_t d_model() const { return config_.model().d_model(); }

  // A micro-batch on its way through the chunk. Tensors live in the arena of the pass.
  struct Pass {
    TokenLayout layout;
    PassInputs in;
    TensorView x_TD;         // what the chunk reads; made here when it starts with the embedding
    TensorView y_TD;         // what it makes; of the last chunk: after the final norm, then the gradient of that
    TensorView dy_TD, dx_TD; // gradients of y and x
    std::vector<DecoderLayer::Saved> layers;
    TensorView before_norm_TD, rstd_T;                        // of the final norm
    std::vector<std::function<absl::Status()>> weight_grads;  // left for later
  };

  // y from x. Without `keep` the pass keeps y alone. pass->layout is set.
  absl::Status Forward(const ModuleContext& ctx, RotaryCache* rotary, bool keep, Pass* pass, RoutingSums* sums);
  // Of the last chunk, after Forward: the sum of -log p over labels; with `backward` pass->dy_TD is the gradient of grad_scale
  // times that sum, in y's place.
  absl::StatusOr<double> Loss(const ModuleContext& ctx, bool backward, double grad_scale, Pass* pass);
  // Of the last chunk, after Forward: see VocabularyTable::Logits.
  absl::Status Logits(const ModuleContext& ctx, const Pass& pass, const std::vector<int32_t>& wanted, TensorView* logits);
  // dx from dy (destroyed). aux_LE [MoE layers of the model, E] optional. With `split` the gradients of weights are left in
  // pass->weight_grads, to be run later.
  absl::Status Backward(const ModuleContext& ctx, bool split, In aux_LE, double z_coef, Pass* pass);

 private:
  ModelChunk(const config::Config& c, const Chunk& place, const Parallel& ranks);

  config::Config config_;
  Chunk place_;
  Parallel ranks_;
  int64_t first_moe_ = 0;
  DType dtype_ = DType::kF32;
  std::vector<std::unique_ptr<DecoderLayer>> layers_;
  VocabularyTable embedding_, output_;
  VocabularyTable* head_ = nullptr;   // output_, which is the embedding itself where both are on this rank and tied
  Param* norm_ = nullptr;
};

}  // namespace moe
#endif  // MOE_CORE_MODEL_MODEL_CHUNK_H_
