#include "experts/expert/ffn_expert.h"

#include <memory>
#include <string>
#include <vector>

namespace moe {
namespace {

class FfnExpert : public Expert {
 public:
  FfnExpert(const ExpertSpec& spec, Activation activation) : spec_(spec), activation_(activation), inner_(spec.d_hidden / spec.etp_size) {}
  std::string name() const override { return spec_.config.kind(); }

  absl::Status DeclareParams(ParamStore* store, const std::string& prefix) override {
    const Range all_D{spec_.d_model, 0, spec_.d_model}, my_F{spec_.d_hidden, spec_.etp_rank * inner_, inner_};
    std::vector<std::string> in = {"w1"};
    if (ActivationInputs(activation_) == 2) in.push_back("w3");
    MOE_ASSIGN_OR_RETURN(w_in_, Declare(store, prefix, ".w_in", in, {my_F, all_D}, spec_.init_stddev_in));
    MOE_ASSIGN_OR_RETURN(w_out_, Declare(store, prefix, ".w_out", {"w2"}, {all_D, my_F}, spec_.init_stddev_out));
    if (!spec_.config.bias()) return absl::OkStatus();
    MOE_ASSIGN_OR_RETURN(b_in_, Declare(store, prefix, ".b_in", in, {my_F}, 0));
    MOE_ASSIGN_OR_RETURN(b_out_, Declare(store, prefix, ".b_out", {"w2"}, {all_D}, 0));
    b_out_->counted = spec_.etp_rank == 0;   // held whole by every rank that shares the inner width
    return absl::OkStatus();
  }

  absl::Status Forward(const ModuleContext& ctx, In x_RD, absl::Span<const int64_t> offsets, ExpertSaved* s, Out y_RD) override {
    Device* d = ctx.device;
    const int64_t R = x_RD.dim(0), F = inner_;
    MOE_ASSIGN_OR_RETURN(s->h_RH, ctx.arena->Make(x_RD.dtype(), {R, F * ActivationInputs(activation_)}));
    MOE_ASSIGN_OR_RETURN(s->a_RF, ctx.arena->Make(x_RD.dtype(), {R, F}));
    MOE_RETURN_IF_ERROR(d->GroupedGemm(GroupedForm::kForward, x_RD, w_in_->value, offsets, 0, s->h_RH));
    if (b_in_) MOE_RETURN_IF_ERROR(d->GroupedBias(b_in_->value, offsets, s->h_RH));
    MOE_RETURN_IF_ERROR(d->ActivationForward(activation_, s->h_RH, s->a_RF));
    MOE_RETURN_IF_ERROR(d->GroupedGemm(GroupedForm::kForward, s->a_RF, w_out_->value, offsets, 0, y_RD));
    // Outputs are partial sums: one of them has the bias.
    return b_out_ && spec_.etp_rank == 0 ? d->GroupedBias(b_out_->value, offsets, y_RD) : absl::OkStatus();
  }

  absl::Status Backward(const ModuleContext& ctx, In x_RD, absl::Span<const int64_t> offsets, const ExpertSaved& s, In dy_RD, Out dx_RD) override {
    Device* d = ctx.device;
    const auto rows = std::make_shared<const std::vector<int64_t>>(offsets.begin(), offsets.end());
    // The output's bias has the same gradient on all ranks that share the inner width: dy is the same there.
    MOE_RETURN_IF_ERROR(WeightGrad(ctx, [d, rows, dy_RD, a_RF = s.a_RF, w = w_out_, b = b_out_]() -> absl::Status {
      MOE_RETURN_IF_ERROR(d->GroupedGemm(GroupedForm::kWeightGrad, dy_RD, a_RF, *rows, 1, w->grad));
      return b ? d->GroupedBiasGrad(dy_RD, *rows, b->grad) : absl::OkStatus();
    }));
    // Backward comes once, so what forward saved makes room for its own gradient as soon as nobody reads it any more: h always,
    // a only when the gradient of w2 is not left for later.
    const Arena::Mark mark = ctx.arena->Position();
    TensorView da = s.a_RF;
    const TensorView& dh = s.h_RH;
    if (ctx.later) {
      MOE_ASSIGN_OR_RETURN(da, ctx.arena->Make(s.a_RF.dtype(), s.a_RF.shape()));
    }
    MOE_RETURN_IF_ERROR(d->GroupedGemm(GroupedForm::kInputGrad, dy_RD, w_out_->value, offsets, 0, da));
    MOE_RETURN_IF_ERROR(d->ActivationBackward(activation_, s.h_RH, da, dh));
    ctx.arena->Rewind(mark);
    MOE_RETURN_IF_ERROR(WeightGrad(ctx, [d, rows, dh_RH = dh, x_RD, w = w_in_, b = b_in_]() -> absl::Status {
      MOE_RETURN_IF_ERROR(d->GroupedGemm(GroupedForm::kWeightGrad, dh_RH, x_RD, *rows, 1, w->grad));
      return b ? d->GroupedBiasGrad(dh_RH, *rows, b->grad) : absl::OkStatus();
    }));
    return d->GroupedGemm(GroupedForm::kInputGrad, dh, w_in_->value, offsets, 0, dx_RD);
  }

 private:
  // This rank's part of one dimension of a global tensor.
  struct Range { int64_t all, begin, size; };

  // A local tensor [e, parts of it stacked along the first of `dims`, ...] whose pieces are the parts of each expert.
  absl::StatusOr<Param*> Declare(ParamStore* store, const std::string& prefix, const std::string& suffix, const std::vector<std::string>& parts, const std::vector<Range>& dims, double stddev) {
    Param p;
    p.name = prefix + suffix;
    p.kind = spec_.param_kind;
    p.init_stddev = stddev;
    p.decay = dims.size() > 1;
    p.shape = {static_cast<int64_t>(spec_.local_experts.size())};
    for (const Range& dim : dims) p.shape.push_back(dim.size);
    p.shape[1] *= static_cast<int64_t>(parts.size());
    int64_t at = 0;
    for (int64_t id : spec_.local_experts) {
      for (const std::string& part : parts) {
        ParamPiece q;
        const std::string of = spec_.param_kind == ParamKind::kExpert ? absl::StrCat(prefix, ".experts.", id, ".") : prefix + ".";
        q.name = of + part + (dims.size() > 1 ? ".weight" : ".bias");
        for (const Range& dim : dims) {
          q.global_shape.push_back(dim.all);
          q.begin.push_back(dim.begin);
          q.shape.push_back(dim.size);
        }
        q.local_offset = at;
        at += q.size();
        p.pieces.push_back(std::move(q));
      }
    }
    return store->Declare(std::move(p));
  }

  ExpertSpec spec_;
  Activation activation_;
  int64_t inner_;   // units of the inner width that this rank holds
  Param *w_in_ = nullptr, *w_out_ = nullptr, *b_in_ = nullptr, *b_out_ = nullptr;
};

// The inner width must be the same on all ranks that share it.
absl::Status CheckShares(const ExpertSpec& spec) {
  const int64_t F = spec.d_hidden, n = spec.etp_size;
  if (n < 1 || spec.etp_rank < 0 || spec.etp_rank >= n) return Internal("expert: part ", spec.etp_rank, " of ", n);
  if (F % n == 0) return absl::OkStatus();
  const bool dense = spec.param_kind == ParamKind::kDense;
  const int64_t below = F / n * n, above = below + n;
  return InvalidArgument(dense ? "model.d_hidden_dense (0: model.d_hidden x model.top_k)" : "model.d_hidden", " is ", F, ", not divisible by ", dense ? "mesh.tp" : "mesh.etp", ", which is ", n,
                         "; nearest that are: ", below > 0 ? absl::StrCat(below, " and ") : "", above);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Expert>> MakeFfnExpert(const ExpertSpec& spec, Activation activation) {
  if (spec.d_model < 1 || spec.d_hidden < 1) return InvalidArgument("expert: d_model is ", spec.d_model, ", d_hidden is ", spec.d_hidden, "; both must be at least 1");
  for (size_t i = 0; i < spec.local_experts.size(); ++i) {
    const int64_t id = spec.local_experts[i];
    if (id < 0 || id >= spec.num_global_experts) return InvalidArgument("expert: local expert ", id, " is outside 0 .. ", spec.num_global_experts - 1, " (model.num_global_experts ", spec.num_global_experts, ")");
    if (i > 0 && id <= spec.local_experts[i - 1]) return InvalidArgument("expert: the local experts must ascend, ", id, " comes after ", spec.local_experts[i - 1]);
  }
  if (spec.param_kind == ParamKind::kDense && spec.local_experts.size() != 1) return InvalidArgument("expert: a dense layer is one network, not ", spec.local_experts.size());
  MOE_RETURN_IF_ERROR(CheckShares(spec));
  return std::unique_ptr<Expert>(new FfnExpert(spec, activation));
}

}  // namespace moe
