#include "core/model/model_chunk.h"

#include <algorithm>

namespace moe {

ModelChunk::ModelChunk(const config::Config& c, const Chunk& place, const Parallel& ranks)
    : config_(c), place_(place), ranks_(ranks), first_moe_(std::max<int64_t>(0, place.first_layer - c.model().num_dense_layers())), embedding_(c.model(), ranks), output_(c.model(), ranks) {}

absl::StatusOr<std::unique_ptr<ModelChunk>> ModelChunk::Make(const config::Config& c, const Chunk& place, const Placement& placement, const Parallel& ranks, const ModuleFactory& modules) {
  std::unique_ptr<ModelChunk> chunk(new ModelChunk(c, place, ranks));
  for (int64_t i = 0; i < place.num_layers; ++i) {
    MOE_ASSIGN_OR_RETURN(auto layer, DecoderLayer::Make(c, place.first_layer + i, placement, ranks, modules));
    chunk->layers_.push_back(std::move(layer));
  }
  return chunk;
}

absl::Status ModelChunk::DeclareParams(ParamStore* store, const ModelChunk* first) {
  const config::ModelConfig& m = config_.model();
  const double small = SmallInitStddev(m);
  dtype_ = store->dtype();
  if (place_.embedding) MOE_RETURN_IF_ERROR(embedding_.DeclareParams(store, "embedding.weight", small, true));
  for (auto& layer : layers_) MOE_RETURN_IF_ERROR(layer->DeclareParams(store));
  if (!place_.head) return absl::OkStatus();
  MOE_ASSIGN_OR_RETURN(norm_, store->DeclareWhole("norm.weight", ParamKind::kReplicated, {m.d_model()}, 1, 0, false));
  head_ = &output_;
  if (!m.tie_embeddings()) return output_.DeclareParams(store, "head.weight", small, true);
  // The same table in both places: on one rank there is one of it; on two stages each has a copy, of which the first counts.
  if (place_.embedding) output_ = embedding_;
  else if (first != nullptr) output_ = first->embedding_;
  else MOE_RETURN_IF_ERROR(output_.DeclareParams(store, "embedding.weight", small, false));
  return absl::OkStatus();
}

absl::Status ModelChunk::Forward(const ModuleContext& ctx, RotaryCache* rotary, bool keep, ChunkPass* pass, RoutingSums* sums) {
  Device* d = ctx.device;
  const TokenLayout& l = pass->layout;
  const std::vector<int64_t> shape = {l.share_rows(), d_model()};
  if (place_.embedding) {
    MOE_ASSIGN_OR_RETURN(pass->x_TD, ctx.arena->Make(dtype_, shape));
  }
  if (place_.head) {
    MOE_ASSIGN_OR_RETURN(pass->y_TD, ctx.arena->Make(dtype_, shape));
    MOE_ASSIGN_OR_RETURN(pass->rstd_T, ctx.arena->Make(dtype_, {shape[0]}));
  }
  pass->in.layout = &pass->layout;
  MOE_ASSIGN_OR_RETURN(pass->in.on_device, ToDevice(ctx.arena, l));
  MOE_ASSIGN_OR_RETURN(pass->in.rotary, rotary->Tables(l.seq()));
  if (place_.embedding) MOE_RETURN_IF_ERROR(embedding_.Embed(ctx, l, pass->x_TD));
  pass->layers.resize(layers_.size());
  // Without backward two buffers of hidden states take turns; else each layer's output is the next one's saved input.
  TensorView x = pass->x_TD, other;
  if (!keep) {
    MOE_ASSIGN_OR_RETURN(other, ctx.arena->Make(dtype_, shape));
  }
  int64_t moe_index = first_moe_;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Arena::Mark mark = ctx.arena->Position();
    TensorView y = other;
    if (keep) {
      MOE_ASSIGN_OR_RETURN(y, ctx.arena->Make(dtype_, shape));
    }
    MOE_RETURN_IF_ERROR(layers_[i]->Forward(ctx, pass->in, x, &pass->layers[i], y, sums, moe_index));
    moe_index += layers_[i]->is_moe();
    if (!keep) {
      other = x;
      ctx.arena->Rewind(mark);
    }
    x = y;
  }
  pass->before_norm_TD = x;
  if (place_.head) return d->RmsNormForward(x, norm_->value, config_.model().norm_eps(), pass->y_TD, pass->rstd_T);
  pass->y_TD = x;
  return absl::OkStatus();
}

absl::StatusOr<double> ModelChunk::Loss(const ModuleContext& ctx, bool backward, double grad_scale, ChunkPass* pass) {
  pass->dy_TD = pass->y_TD;
  return head_->Loss(ctx, pass->layout, backward, grad_scale, pass->y_TD);
}

absl::Status ModelChunk::Logits(const ModuleContext& ctx, const ChunkPass& pass, const std::vector<int32_t>& wanted, TensorView* logits) {
  return head_->Logits(ctx, pass.layout, pass.y_TD, wanted, logits);
}

absl::Status ModelChunk::Backward(const ModuleContext& given, bool split, In aux_LE, double z_coef, ChunkPass* pass) {
  Device* d = given.device;
  ModuleContext ctx = given;
  ctx.later = split ? &pass->weight_grads : nullptr;
  pass->dx_TD = pass->dy_TD;
  if (place_.head) {
    MOE_ASSIGN_OR_RETURN(pass->dx_TD, ctx.arena->Make(dtype_, pass->dy_TD.shape()));
    MOE_RETURN_IF_ERROR(d->RmsNormBackward(pass->before_norm_TD, norm_->value, pass->rstd_T, pass->dy_TD, pass->dx_TD, false, norm_->grad));
  }
  int64_t moe_index = first_moe_;
  for (const auto& layer : layers_) moe_index += layer->is_moe();
  for (size_t i = layers_.size(); i-- > 0;) {
    moe_index -= layers_[i]->is_moe();
    const TensorView aux_E = aux_LE.defined() && layers_[i]->is_moe() ? aux_LE.At(moe_index) : TensorView();
    const Arena::Mark mark = ctx.arena->Position();
    MOE_RETURN_IF_ERROR(layers_[i]->Backward(ctx, pass->in, pass->layers[i], aux_E, z_coef, pass->dx_TD));
    if (!split) ctx.arena->Rewind(mark);   // else what is left for later reads it
  }
  return place_.embedding ? embedding_.EmbedBackward(ctx, pass->layout, pass->dx_TD) : absl::OkStatus();
}

}  // namespace moe
