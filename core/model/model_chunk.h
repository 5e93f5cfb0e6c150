// A chunk of a decoder-only transformer: its layers, in the first chunk the embedding, in the last one the final norm and the
// output head with its cross-entropy.
#ifndef MOE_CORE_MODEL_MODEL_CHUNK_H_
#define MOE_CORE_MODEL_MODEL_CHUNK_H_

#include <memory>
#include <vector>

#include "core/model/stage_chunk.h"
#include "core/model/vocabulary.h"

namespace moe {

class ModelChunk : public StageChunk {
 public:
  // `first_moe`: MoE layers of the model before this chunk.
  static absl::StatusOr<std::unique_ptr<ModelChunk>> Make(const config::Config& c, const Chunk& place, const Placement& placement, const Parallel& ranks, const ModuleFactory& modules);
  // `first` is the rank's first chunk when that is another one with the embedding: tied embeddings are one table then.
  absl::Status DeclareParams(ParamStore* store, const ModelChunk* first);

  const Chunk& place() const override { return place_; }
  DType dtype() const override { return dtype_; }
  int64_t d_model() const override { return config_.model().d_model(); }
  absl::Status Forward(const ModuleContext& ctx, RotaryCache* rotary, bool keep, ChunkPass* pass, RoutingSums* sums) override;
  absl::StatusOr<double> Loss(const ModuleContext& ctx, bool backward, double grad_scale, ChunkPass* pass) override;
  absl::Status Logits(const ModuleContext& ctx, const ChunkPass& pass, const std::vector<int32_t>& wanted, TensorView* logits) override;
  absl::Status Backward(const ModuleContext& ctx, bool split, In aux_LE, double z_coef, ChunkPass* pass) override;

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
