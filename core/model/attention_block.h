// Grouped-query causal self-attention with rotary positions: y += W_o attention(rotary(W_q x), rotary(W_k x), W_v x).
//
// Tensor parallelism: a rank has some of the heads, rows of W_q, W_k, W_v and columns of W_o; it gathers the tokens of its
// group and gives back partial outputs (arXiv 1909.08053, 2205.05198). Context parallelism: a rank has the queries of its part
// of each sequence and gathers keys and values of all parts.
#ifndef MOE_CORE_MODEL_ATTENTION_BLOCK_H_
#define MOE_CORE_MODEL_ATTENTION_BLOCK_H_

#include <string>

#include "core/config/config.pb.h"
#include "core/model/rotary.h"
#include "core/model/token_layout.h"
#include "core/moe/parameter.h"

namespace moe {

class AttentionBlock {
 public:
  // x_TD: what the projection read: all rows of the tensor-parallel group. kv_SQ: keys and values of whole sequences, with
  // context parallelism. lse: [halves, B, H, chunk].
  struct Saved { TensorView x_TD, qkv_TQ, kv_SQ, o_TQ, lse; };

  AttentionBlock(const config::ModelConfig& c, const Parallel& ranks);
  // "<prefix>.{q,k,v,o}.weight"; q, k and v are the rows of one local tensor.
  absl::Status DeclareParams(ParamStore* store, const std::string& prefix, double stddev_in, double stddev_out);
  // x and y have the rank's share of the rows. y_TD += attention output.
  absl::Status Forward(const ModuleContext& ctx, const PassInputs& in, In x_TD, Saved* saved, Out y_TD);
  // dx_TD overwritten; parameter gradients added to.
  absl::Status Backward(const ModuleContext& ctx, const PassInputs& in, const Saved& saved, In dy_TD, Out dx_TD);

 private:
  AttentionShape Shape(const TokenLayout& layout, int64_t half) const;
  absl::Status GatherKeysAndValues(const ModuleContext& ctx, const PassInputs& in, Saved* saved);
  absl::Status BackwardOfAttention(const ModuleContext& ctx, const PassInputs& in, const Saved& s, In do_TQ, Out dqkv_TQ);
  int64_t q_cols() const { return heads_ * head_dim_; }
  int64_t kv_cols() const { return kv_heads_ * head_dim_; }
  TensorView Q(In qkv) const { return qkv.Columns(0, q_cols()); }
  // Keys and values: neighbours in qkv.
  TensorView KV(In qkv) const { return qkv.Columns(q_cols(), 2 * kv_cols()); }
  TensorView K(In kv) const { return kv.Columns(0, kv_cols()); }
  TensorView V(In kv) const { return kv.Columns(kv_cols(), kv_cols()); }
  // Queries and keys: one rotation does both.
  TensorView QK(In qkv) const { return qkv.Columns(0, q_cols() + kv_cols()); }

  Parallel ranks_;
  int64_t d_model_, heads_, kv_heads_, head_dim_;   // heads of this rank
  Param* qkv_ = nullptr;
  Param* out_ = nullptr;
};

}  // namespace moe
#endif  // MOE_CORE_MODEL_ATTENTION_BLOCK_H_
