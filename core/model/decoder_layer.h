// One decoder layer: x += attention(norm(x)); x += feed_forward(norm(x)), the feed-forward being experts or one dense
// network, which tensor parallelism cuts along its inner width.
#ifndef MOE_CORE_MODEL_DECODER_LAYER_H_
#define MOE_CORE_MODEL_DECODER_LAYER_H_

#include <memory>
#include <string>

#include "core/model/attention_block.h"
#include "core/moe/moe_layer.h"

namespace moe {

class DecoderLayer {
 public:
  struct Saved {
    TensorView x_TD, rstd1_T, mid_TD, rstd2_T, norm2_TD;
    TensorView ffn_x_TD;   // what a dense feed-forward layer read: all rows of the tensor-parallel group
    AttentionBlock::Saved attention;
    MoeSaved moe;
    ExpertSaved dense;
  };

  // `index` counts all layers; layers below num_dense_layers are dense.
  static absl::StatusOr<std::unique_ptr<DecoderLayer>> Make(const config::Config& c, int64_t index, const Placement& placement, const Parallel& ranks, const ModuleFactory& modules);
  absl::Status DeclareParams(ParamStore* store);
  bool is_moe() const { return moe_ != nullptr; }

  // x and y have the rank's share of the rows (TokenLayout). y_TD: the layer's output (overwritten). moe_index: row of `sums`.
  absl::Status Forward(const ModuleContext& ctx, const PassInputs& in, In x_TD, Saved* saved, Out y_TD, RoutingSums* sums, int64_t moe_index);
  // dx_TD: on entry the gradient of the output, on return that of the input.
  absl::Status Backward(const ModuleContext& ctx, const PassInputs& in, const Saved& saved, In aux_E, double z_coef, Out dx_TD);

 private:
  DecoderLayer(const config::Config& c, int64_t index, const Parallel& ranks) : config_(c), index_(index), ranks_(ranks), attention_(c.model(), ranks) {}
  absl::Status DenseForward(const ModuleContext& ctx, const PassInputs& in, Saved* s, Out y_TD);
  absl::Status DenseBackward(const ModuleContext& ctx, const PassInputs& in, const Saved& s, In dy_TD, Out dx_TD);

  config::Config config_;
  int64_t index_;
  const std::string place_ = absl::StrCat("layers.", index_);   // for messages and the flight recorder
  Parallel ranks_;
  AttentionBlock attention_;
  std::unique_ptr<MoeLayer> moe_;
  std::unique_ptr<Expert> dense_;
  Param* norm1_ = nullptr;
  Param* norm2_ = nullptr;
};

// Standard deviation of an initial matrix of `fan_in` inputs; matrices that write into the residual stream are smaller by
// sqrt(2 * num_layers), so that its variance does not grow with depth (GPT-2's scheme).
double InitStddev(const config::ModelConfig& c, int64_t fan_in, bool residual);
// Of embedding, router and output head: small, so that training starts from nearly uniform routing and predictions.
double SmallInitStddev(const config::ModelConfig& c);
// The MoE layer of a configuration; `residual` as in InitStddev, for what the experts write.
MoeLayerSpec MakeMoeLayerSpec(const config::Config& c, const std::string& name, bool residual);

}  // namespace moe
#endif  // MOE_CORE_MODEL_DECODER_LAYER_H_
