#include "core/model/transformer.h"

#include <algorithm>
#include <cmath>

#include "core/device/host_copy.h"

namespace moe {
namespace {

// Rows of logits that are in memory at a time: 16 MiB of float32.
int64_t LossRows(int64_t vocab) { return std::max<int64_t>(64, (int64_t{4} << 20) / vocab); }

// Values that stay on the device, outside of any arena.
absl::StatusOr<Buffer> Keep(Device* device, DType dtype, const std::vector<double>& values) {
  Arena scratch(device);
  const int64_t n = static_cast<int64_t>(values.size());
  MOE_ASSIGN_OR_RETURN(const TensorView wide, ToDevice(&scratch, DType::kF64, {n}, values.data()));
  MOE_ASSIGN_OR_RETURN(Buffer kept, Buffer::Make(device, n * SizeOf(dtype)));
  MOE_RETURN_IF_ERROR(device->Copy(wide, TensorView(kept.data(), dtype, {n})));
  return kept;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Make(const config::Config& c, const Placement& placement, const MoeGroups& groups, const ModuleFactory& modules) {
  std::unique_ptr<Transformer> t(new Transformer(c));
  for (int64_t i = 0; i < c.model().num_layers(); ++i) {
    MOE_ASSIGN_OR_RETURN(auto layer, DecoderLayer::Make(c, i, placement, groups, modules));
    t->num_moe_layers_ += layer->is_moe();
    t->layers_.push_back(std::move(layer));
  }
  return t;
}

absl::Status Transformer::DeclareParams(ParamStore* store) {
  const config::ModelConfig& m = config_.model();
  MOE_ASSIGN_OR_RETURN(embedding_, store->DeclareWhole("embedding.weight", ParamKind::kDense, {m.vocab_size(), m.d_model()}, 0, SmallInitStddev(m), true));
  for (auto& layer : layers_) MOE_RETURN_IF_ERROR(layer->DeclareParams(store));
  MOE_ASSIGN_OR_RETURN(norm_, store->DeclareWhole("norm.weight", ParamKind::kDense, {m.d_model()}, 1, 0, false));
  if (!m.tie_embeddings()) {
    MOE_ASSIGN_OR_RETURN(head_, store->DeclareWhole("head.weight", ParamKind::kDense, {m.vocab_size(), m.d_model()}, 0, SmallInitStddev(m), true));
  }
  return absl::OkStatus();
}

absl::Status Transformer::GrowRope(Device* device, int64_t seq) {
  if (seq <= rope_length_) return absl::OkStatus();
  const int64_t length = std::max(seq, config_.train().seq_len()), half = HeadDim(config_.model()) / 2;
  std::vector<double> cosines(length * half), sines(length * half);
  for (int64_t p = 0; p < length; ++p) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p) * std::pow(config_.model().rope_theta(), -static_cast<double>(i) / static_cast<double>(half));
      cosines[p * half + i] = std::cos(angle);
      sines[p * half + i] = std::sin(angle);
    }
  }
  MOE_ASSIGN_OR_RETURN(cos_, Keep(device, embedding_->value.dtype(), cosines));
  MOE_ASSIGN_OR_RETURN(sin_, Keep(device, embedding_->value.dtype(), sines));
  rope_length_ = length;
  return absl::OkStatus();
}

absl::StatusOr<RotaryTables> Transformer::Rope(const ModuleContext& ctx, int64_t batch, int64_t seq) {
  MOE_RETURN_IF_ERROR(GrowRope(ctx.device, seq));
  std::vector<int32_t> positions(batch * seq);
  for (size_t t = 0; t < positions.size(); ++t) positions[t] = static_cast<int32_t>(static_cast<int64_t>(t) % seq);
  const DType dtype = embedding_->value.dtype();
  const int64_t half = HeadDim(config_.model()) / 2;
  RotaryTables r;
  r.cos_PC = TensorView(cos_.data(), dtype, {rope_length_, half});
  r.sin_PC = TensorView(sin_.data(), dtype, {rope_length_, half});
  MOE_ASSIGN_OR_RETURN(r.positions_T, ToDevice(ctx.arena, DType::kI32, {batch * seq}, positions.data()));
  return r;
}

absl::Status Transformer::Forward(const ModuleContext& ctx, const int32_t* ids, int64_t batch, int64_t seq, bool keep, Pass* pass, RoutingSums* sums) {
  Device* d = ctx.device;
  const config::ModelConfig& m = config_.model();
  const int64_t T = batch * seq;
  const DType t = embedding_->value.dtype();
  pass->batch = batch;
  pass->seq = seq;
  sums->tokens += T;
  MOE_ASSIGN_OR_RETURN(pass->final_TD, ctx.arena->Make(t, {T, m.d_model()}));
  MOE_ASSIGN_OR_RETURN(pass->ids_T, ToDevice(ctx.arena, DType::kI32, {T}, ids));
  MOE_ASSIGN_OR_RETURN(pass->rope, Rope(ctx, batch, seq));
  pass->layers.resize(layers_.size());
  // Without backward two buffers of hidden states take turns; else each layer's output is the next one's saved input.
  MOE_ASSIGN_OR_RETURN(TensorView x, ctx.arena->Make(t, {T, m.d_model()}));
  MOE_ASSIGN_OR_RETURN(TensorView other, ctx.arena->Make(t, {keep ? 0 : T, m.d_model()}));
  MOE_RETURN_IF_ERROR(d->EmbeddingForward(pass->ids_T, embedding_->value, x));
  int64_t moe_index = 0;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Arena::Mark mark = ctx.arena->Position();
    TensorView y = other;
    if (keep) {
      MOE_ASSIGN_OR_RETURN(y, ctx.arena->Make(t, {T, m.d_model()}));
    }
    MOE_RETURN_IF_ERROR(layers_[i]->Forward(ctx, pass->rope, batch, seq, x, &pass->layers[i], y, sums, moe_index));
    moe_index += layers_[i]->is_moe();
    if (!keep) {
      other = x;
      ctx.arena->Rewind(mark);
    }
    x = y;
  }
  pass->x_TD = x;
  MOE_ASSIGN_OR_RETURN(pass->rstd_T, ctx.arena->Make(t, {T}));
  return d->RmsNormForward(x, norm_->value, m.norm_eps(), pass->final_TD, pass->rstd_T);
}

absl::StatusOr<double> Transformer::Loss(const ModuleContext& ctx, In final_TD, const int32_t* labels, double grad_scale, Out dfinal_TD) {
  Device* d = ctx.device;
  const int64_t T = final_TD.dim(0), V = config_.model().vocab_size(), block = LossRows(V);
  const DType t = final_TD.dtype();
  double sum = 0;
  for (int64_t begin = 0; begin < T; begin += block) {
    const Arena::Mark mark = ctx.arena->Position();
    const int64_t n = std::min(block, T - begin);
    MOE_ASSIGN_OR_RETURN(TensorView logits, ctx.arena->Make(t, {n, V}));
    MOE_ASSIGN_OR_RETURN(TensorView nll, ctx.arena->Make(t, {n}));
    MOE_ASSIGN_OR_RETURN(TensorView label, ToDevice(ctx.arena, DType::kI32, {n}, labels + begin));
    const TensorView x = final_TD.Rows(begin, n);
    MOE_RETURN_IF_ERROR(d->Gemm(false, true, 1, x, Head()->value, 0, logits));
    MOE_RETURN_IF_ERROR(d->CrossEntropy(logits, label, nll, grad_scale != 0, grad_scale));
    MOE_ASSIGN_OR_RETURN(double part, d->Sum(nll));
    sum += part;
    if (grad_scale != 0) {
      MOE_RETURN_IF_ERROR(d->Gemm(true, false, 1, logits, x, 1, Head()->grad));
      MOE_RETURN_IF_ERROR(d->Gemm(false, false, 1, logits, Head()->value, 0, dfinal_TD.Rows(begin, n)));
    }
    ctx.arena->Rewind(mark);
  }
  return sum;
}

absl::Status Transformer::Logits(const ModuleContext& ctx, In final_TD, Out logits_TV) {
  return ctx.device->Gemm(false, true, 1, final_TD, Head()->value, 0, logits_TV);
}

absl::Status Transformer::Backward(const ModuleContext& ctx, const Pass& pass, In aux_LE, double z_coef, Out dfinal_TD) {
  Device* d = ctx.device;
  MOE_ASSIGN_OR_RETURN(TensorView dx, ctx.arena->Make(dfinal_TD.dtype(), dfinal_TD.shape()));
  MOE_RETURN_IF_ERROR(d->RmsNormBackward(pass.x_TD, norm_->value, pass.rstd_T, dfinal_TD, dx, false, norm_->grad));
  int64_t moe_index = num_moe_layers_;
  for (size_t i = layers_.size(); i-- > 0;) {
    moe_index -= layers_[i]->is_moe();
    const TensorView aux_E = aux_LE.defined() && layers_[i]->is_moe() ? aux_LE.At(moe_index) : TensorView();
    const Arena::Mark mark = ctx.arena->Position();
    MOE_RETURN_IF_ERROR(layers_[i]->Backward(ctx, pass.rope, pass.batch, pass.seq, pass.layers[i], aux_E, z_coef, dx));
    ctx.arena->Rewind(mark);
  }
  return d->EmbeddingBackward(pass.ids_T, dx, embedding_->grad);
}

}  // namespace moe
