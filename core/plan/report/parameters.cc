#include "core/plan/report/parameters.h"

#include <algorithm>

namespace moe {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t HeadSize(const config::ModelConfig& m) { return m.head_dim() ? m.head_dim() : m.d_model() / m.num_heads(); }
bool IsLatent(const config::ModelConfig& m) { return m.attention() == "mla"; }
bool IsGated(const config::Config& c) { return c.expert().kind() == "swiglu"; }

// Two matrices, three when gated.
int64_t FeedForward(const config::Config& c, int64_t width) {
  const int64_t d = c.model().d_model(), matrices = IsGated(c) ? 3 : 2;
  return matrices * d * width + (c.expert().bias() ? (matrices - 1) * width + d : 0);
}

}  // namespace

int64_t QueryWidth(const config::ModelConfig& m) { return m.num_heads() * (IsLatent(m) ? m.qk_nope_head_dim() + m.qk_rope_head_dim() : HeadSize(m)); }
int64_t ValueWidth(const config::ModelConfig& m) { return m.num_heads() * (IsLatent(m) ? m.v_head_dim() : HeadSize(m)); }
int64_t KeyValueWidth(const config::ModelConfig& m) { return IsLatent(m) ? m.kv_lora_rank() + m.qk_rope_head_dim() : 2 * m.num_kv_heads() * HeadSize(m); }
int64_t DenseWidth(const config::ModelConfig& m) { return m.d_hidden_dense() ? m.d_hidden_dense() : m.d_hidden() * m.top_k(); }
int64_t ElementBytes(const config::ModelConfig& m) { return m.dtype() == "float64" ? 8 : 4; }

bool IsMoeLayer(const config::Config& c, int64_t layer) { return layer >= c.model().num_dense_layers(); }

LayerParameters CountLayer(const config::Config& c, bool moe_layer) {
  const config::ModelConfig& m = c.model();
  const int64_t d = m.d_model();
  LayerParameters p;
  p.norms = 2 * d;
  p.attention = ValueWidth(m) * d;   // output
  if (IsLatent(m)) {
    // Down to the latent vectors, with a norm each, and up to the heads (arXiv 2405.04434, 2.1).
    p.latent = d * (m.kv_lora_rank() + m.qk_rope_head_dim()) + d * m.q_lora_rank();
    p.norms += m.kv_lora_rank() + m.q_lora_rank();
    p.attention += (m.q_lora_rank() ? m.q_lora_rank() : d) * QueryWidth(m) + m.kv_lora_rank() * m.num_heads() * (m.qk_nope_head_dim() + m.v_head_dim());
  } else {
    p.attention += d * (QueryWidth(m) + KeyValueWidth(m));
  }
  if (moe_layer) {
    p.one_expert = FeedForward(c, m.d_hidden());
    p.one_expert_whole_bias = c.expert().bias() ? d : 0;
    p.router = d * m.num_global_experts();
    p.dense_ffn = m.num_shared_experts() * FeedForward(c, m.d_hidden());
  } else {
    p.dense_ffn = FeedForward(c, DenseWidth(m));
  }
  return p;
}

ModelParameters CountModel(const config::Config& c) {
  const config::ModelConfig& m = c.model();
  ModelParameters out;
  const int64_t vocabulary = m.vocab_size() * m.d_model();
  out.whole.dense = vocabulary * (m.tie_embeddings() ? 1 : 2);
  out.whole.replicated = m.d_model();   // the last norm
  int64_t idle = 0;                     // experts that a token does not go to
  for (bool moe_layer : {false, true}) {
    const int64_t layers = moe_layer ? m.num_layers() - m.num_dense_layers() : m.num_dense_layers();
    const LayerParameters p = CountLayer(c, moe_layer);
    out.whole.dense += layers * (p.attention + p.latent + p.dense_ffn);
    out.whole.replicated += layers * (p.router + p.norms);
    if (!moe_layer) continue;
    out.routed_experts = layers * m.num_global_experts();
    out.whole.expert = out.routed_experts * p.one_expert;
    idle = layers * (m.num_global_experts() - m.top_k()) * p.one_expert;
  }
  out.active_per_token = out.whole.total() - idle;
  return out;
}

int64_t ExpertsPerRank(const config::Config& c, const Mesh& mesh) { return CeilDiv(c.model().num_global_experts(), mesh.size(Axis::kEp)); }

ParameterCounts CountRank(const config::Config& c, const Mesh& mesh, const std::vector<Chunk>& chunks) {
  const config::ModelConfig& m = c.model();
  const int64_t tp = mesh.size(Axis::kTp), etp = mesh.size(Axis::kEtp), vocabulary = CeilDiv(m.vocab_size(), tp) * m.d_model();
  const LayerParameters layer[2] = {CountLayer(c, false), CountLayer(c, true)};
  ParameterCounts out;
  bool has_embedding = false;
  for (const Chunk& chunk : chunks) has_embedding = has_embedding || chunk.embedding;
  for (const Chunk& chunk : chunks) {
    // Layers below num_dense_layers are dense: no need to look at each.
    const int64_t dense = std::clamp<int64_t>(m.num_dense_layers() - chunk.first_layer, 0, chunk.num_layers), numbers[2] = {dense, chunk.num_layers - dense};
    for (int moe_layer = 0; moe_layer < 2; ++moe_layer) {
      const LayerParameters& p = layer[moe_layer];
      const int64_t experts = moe_layer ? ExpertsPerRank(c, mesh) : 0;
      out.dense += numbers[moe_layer] * (CeilDiv(p.attention, tp) + CeilDiv(p.dense_ffn, tp));
      out.replicated += numbers[moe_layer] * (p.latent + p.router + p.norms);
      out.expert += numbers[moe_layer] * experts * (CeilDiv(p.one_expert - p.one_expert_whole_bias, etp) + p.one_expert_whole_bias);
    }
    if (chunk.embedding) out.dense += vocabulary;
    if (chunk.head) {
      out.replicated += m.d_model();
      if (!m.tie_embeddings() || !has_embedding) out.dense += vocabulary;
    }
  }
  return out;
}

}  // namespace moe
