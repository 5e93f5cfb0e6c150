// A decoder-only transformer of one rank: embedding, decoder layers, final norm, output head with cross-entropy.
#ifndef MOE_CORE_MODEL_TRANSFORMER_H_
#define MOE_CORE_MODEL_TRANSFORMER_H_

#include <memory>
#include <vector>

#include "core/model/decoder_layer.h"

namespace moe {

class Transformer {
 public:
  static absl::StatusOr<std::unique_ptr<Transformer>> Make(const config::Config& c, const Placement& placement, const MoeGroups& groups, const ModuleFactory& modules);
  absl::Status DeclareParams(ParamStore* store);
  int64_t num_moe_layers() const { return num_moe_layers_; }

  // What a forward pass leaves for the backward pass of the same micro-batch.
  struct Pass {
    int64_t batch = 0, seq = 0;
    TensorView ids_T, final_TD;
    RotaryTables rope;
    std::vector<DecoderLayer::Saved> layers;
    TensorView rstd_T, x_TD;   // of the final norm
  };

  // Hidden states of `batch` sequences: pass->final_TD, normalised. ids are on the host. With `keep` false only final_TD
  // is left of the pass's memory.
  absl::Status Forward(const ModuleContext& ctx, const int32_t* ids, int64_t batch, int64_t seq, bool keep, Pass* pass, RoutingSums* sums);
  // Sum of -log p(label) over the labels that are not negative. With grad_scale != 0 also d(grad_scale * sum) / d final_TD in
  // dfinal_TD and the head's gradient. Works in blocks of rows: [T, V] is never stored whole.
  absl::StatusOr<double> Loss(const ModuleContext& ctx, In final_TD, const int32_t* labels, double grad_scale, Out dfinal_TD);
  absl::Status Logits(const ModuleContext& ctx, In final_TD, Out logits_TV);
  // From the gradient of final_TD (destroyed). aux_LE [MoE layers, E] optional.
  absl::Status Backward(const ModuleContext& ctx, const Pass& pass, In aux_LE, double z_coef, Out dfinal_TD);

 private:
  explicit Transformer(const config::Config& c) : config_(c) {}
  absl::StatusOr<RotaryTables> Rope(const ModuleContext& ctx, int64_t batch, int64_t seq);
  // Tables of the rotary angles of at least `seq` positions: made once, not at every step.
  absl::Status GrowRope(Device* device, int64_t seq);
  Param* Head() const { return head_ ? head_ : embedding_; }

  config::Config config_;
  int64_t num_moe_layers_ = 0;
  std::vector<std::unique_ptr<DecoderLayer>> layers_;
  Param* embedding_ = nullptr;
  Param* norm_ = nullptr;
  Param* head_ = nullptr;   // null: tied
  Buffer cos_, sin_;        // [rope_length_, head / 2], the model's dtype
  int64_t rope_length_ = 0;
};

}  // namespace moe
#endif  // MOE_CORE_MODEL_TRANSFORMER_H_
