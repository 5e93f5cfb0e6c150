// Grouped-query causal self-attention with rotary positions: y += W_o attention(rotary(W_q x), rotary(W_k x), W_v x).
#ifndef MOE_CORE_MODEL_ATTENTION_BLOCK_H_
#define MOE_CORE_MODEL_ATTENTION_BLOCK_H_

#include <string>

#include "core/config/config.pb.h"
#include "core/device/arena.h"
#include "core/moe/gate.h"
#include "core/moe/parameter.h"

namespace moe {

// Cosines and sines of all positions, made once: cos, sin [P, h/2] (arXiv 2104.09864), positions [B*S] of the batch.
struct RotaryTables { TensorView cos_PC, sin_PC, positions_T; };

class AttentionBlock {
 public:
  struct Saved { TensorView x_TD, qkv_TQ, o_TQ, lse_BHS; };

  explicit AttentionBlock(const config::ModelConfig& c);
  // "<prefix>.{q,k,v,o}.weight"; q, k and v are the rows of one local tensor.
  absl::Status DeclareParams(ParamStore* store, const std::string& prefix, double stddev_in, double stddev_out);
  // y_TD += attention output. T = batch * seq.
  absl::Status Forward(const ModuleContext& ctx, const RotaryTables& rope, int64_t batch, int64_t seq, In x_TD, Saved* saved, Out y_TD);
  // dx_TD overwritten; parameter gradients added to.
  absl::Status Backward(const ModuleContext& ctx, const RotaryTables& rope, int64_t batch, int64_t seq, const Saved& saved, In dy_TD, Out dx_TD);

 private:
  AttentionShape Shape(int64_t batch, int64_t seq) const;
  TensorView Q(In qkv) const { return qkv.Columns(0, heads_ * head_dim_); }
  TensorView K(In qkv) const { return qkv.Columns(heads_ * head_dim_, kv_heads_ * head_dim_); }
  TensorView V(In qkv) const { return qkv.Columns((heads_ + kv_heads_) * head_dim_, kv_heads_ * head_dim_); }
  // Queries and keys together: neighbours in qkv, so one rotation does both.
  TensorView QK(In qkv) const { return qkv.Columns(0, (heads_ + kv_heads_) * head_dim_); }

  int64_t d_model_, heads_, kv_heads_, head_dim_;
  Param* qkv_ = nullptr;
  Param* out_ = nullptr;
};

// Size of one head: head_dim, or d_model / num_heads.
int64_t HeadDim(const config::ModelConfig& c);

}  // namespace moe
#endif  // MOE_CORE_MODEL_ATTENTION_BLOCK_H_
