#include "core/train/optimizer.h"

#include <algorithm>
#include <cmath>

#include "core/train/lr_schedule.h"

namespace moe {
namespace {

int64_t OffsetInFlat(const ParamStore& store, const Param& p) {
  const TensorView flat = store.flat_value(p.kind);
  return (static_cast<char*>(p.value.data()) - static_cast<char*>(flat.data())) / SizeOf(flat.dtype());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> Optimizer::Make(const config::OptimizerConfig& config, int64_t total_steps, ParamStore* store) {
  std::unique_ptr<Optimizer> o(new Optimizer(config, total_steps, store));
  for (int k = 0; k < kNumParamKinds; ++k) {
    const ParamKind kind = static_cast<ParamKind>(k);
    for (const Param& p : store->params()) {
      if (p.kind != kind) continue;
      const int64_t begin = OffsetInFlat(*store, p);
      Segment* last = o->segments_.empty() ? nullptr : &o->segments_.back();
      if (last && last->kind == kind && last->decay == p.decay && last->counted == p.counted) last->size = begin + p.size() - last->begin;
      else o->segments_.push_back({kind, begin, p.size(), p.decay, p.counted});
    }
  }
  std::vector<const char*> names;
  if (config.kind() == "adamw") names = {"m", "v"};
  else if (config.momentum() > 0) names = {"momentum"};
  for (const char* name : names) {
    State s;
    s.name = name;
    for (int k = 0; k < kNumParamKinds; ++k) {
      const TensorView like = store->flat_value(static_cast<ParamKind>(k));
      MOE_ASSIGN_OR_RETURN(Buffer b, Buffer::Make(store->device(), std::max<int64_t>(like.bytes(), 1)));
      s.flat[k] = TensorView(b.data(), like.dtype(), {like.size()});
      MOE_RETURN_IF_ERROR(store->device()->Fill(s.flat[k], 0));
      o->memory_.push_back(std::move(b));
    }
    o->state_.push_back(s);
  }
  return o;
}

absl::StatusOr<double> Optimizer::GradNormPart(const Owner& owner) {
  double all = 0;
  for (const Segment& s : segments_) {
    if (!owner[static_cast<int>(s.kind)] || !s.counted) continue;
    const TensorView grad = store_->flat_grad(s.kind).Rows(s.begin, s.size);
    if (infinity_norm()) {
      MOE_ASSIGN_OR_RETURN(const double part, store_->device()->MaxAbs(grad));
      if (std::isnan(part)) return part;
      all = std::max(all, part);
    } else {
      MOE_ASSIGN_OR_RETURN(const double part, store_->device()->SumSquares(grad));
      all += part;
    }
  }
  return all;
}

absl::StatusOr<double> Optimizer::Step(double grad_norm) {
  if (!std::isfinite(grad_norm))
    return absl::InvalidArgumentError(absl::StrCat("the gradient norm of step ", step_, " is ", grad_norm,
                                                   "; nothing was updated. Remedy: a smaller optimizer.lr, more optimizer.warmup_steps, or clean data"));
  const double lr = LearningRate(config_, total_steps_, step_);
  const double scale = config_.clip_norm() > 0 ? std::min(1.0, config_.clip_norm() / (grad_norm + 1e-6)) : 1.0;
  Device* d = store_->device();
  for (const Segment& s : segments_) {
    const auto part = [&](const TensorView& flat) { return flat.Rows(s.begin, s.size); };
    const int k = static_cast<int>(s.kind);
    const double decay = s.decay ? config_.weight_decay() : 0.0;
    const TensorView g = part(store_->flat_grad(s.kind)), p = part(store_->flat_value(s.kind));
    if (config_.kind() == "adamw") {
      AdamWStep a;
      a.lr = lr;
      a.beta1 = config_.beta1();
      a.beta2 = config_.beta2();
      a.eps = config_.eps();
      a.weight_decay = decay;
      a.step = step_ + 1;
      a.grad_scale = scale;
      MOE_RETURN_IF_ERROR(d->AdamW(a, g, p, part(state_[0].flat[k]), part(state_[1].flat[k])));
    } else {
      const TensorView momentum = state_.empty() ? TensorView() : part(state_[0].flat[k]);
      MOE_RETURN_IF_ERROR(d->Sgd(lr, config_.momentum(), decay, scale, g, p, momentum));
    }
  }
  ++step_;
  return lr;
}

TensorView Optimizer::StateOf(const State& state, const Param& p) const {
  const TensorView flat = state.flat[static_cast<int>(p.kind)];
  return TensorView(flat.Rows(OffsetInFlat(*store_, p), p.size()).data(), flat.dtype(), p.shape);
}

int64_t Optimizer::state_bytes() const {
  int64_t n = 0;
  for (const Buffer& b : memory_) n += b.bytes();
  return n;
}

}  // namespace moe
