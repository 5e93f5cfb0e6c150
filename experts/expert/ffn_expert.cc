#include "experts/expert/ffn_expert.h"

namespace moe {
namespace {

class FfnExpert : public Expert {
 public:
  FfnExpert(const ExpertSpec& spec, Activation activation) : spec_(spec), activation_(activation) {}
  std::string name() const override { return spec_.config.kind(); }

  absl::Status DeclareParams(ParamStore* store, const std::string& prefix) override {
    const int64_t D = spec_.d_model, F = spec_.d_hidden;
    const bool glu = ActivationInputs(activation_) == 2;
    const std::vector<Part> in = glu ? std::vector<Part>{{"w1", F}, {"w3", F}} : std::vector<Part>{{"w1", F}};
    MOE_ASSIGN_OR_RETURN(w_in_, Declare(store, prefix, ".w_in", in, D, spec_.init_stddev_in));
    MOE_ASSIGN_OR_RETURN(w_out_, Declare(store, prefix, ".w_out", {{"w2", D}}, F, spec_.init_stddev_out));
    if (!spec_.config.bias()) return absl::OkStatus();
    MOE_ASSIGN_OR_RETURN(b_in_, Declare(store, prefix, ".b_in", in, 0, 0));
    MOE_ASSIGN_OR_RETURN(b_out_, Declare(store, prefix, ".b_out", {{"w2", D}}, 0, 0));
    return absl::OkStatus();
  }

  absl::Status Forward(const ModuleContext& ctx, In x_RD, absl::Span<const int64_t> offsets, ExpertSaved* s, Out y_RD) override {
    Device* d = ctx.device;
    const int64_t R = x_RD.dim(0), F = spec_.d_hidden;
    MOE_ASSIGN_OR_RETURN(s->h_RH, ctx.arena->Make(x_RD.dtype(), {R, F * ActivationInputs(activation_)}));
    MOE_ASSIGN_OR_RETURN(s->a_RF, ctx.arena->Make(x_RD.dtype(), {R, F}));
    MOE_RETURN_IF_ERROR(d->GroupedGemm(GroupedForm::kForward, x_RD, w_in_->value, offsets, 0, s->h_RH));
    if (b_in_) MOE_RETURN_IF_ERROR(d->GroupedBias(b_in_->value, offsets, s->h_RH));
    MOE_RETURN_IF_ERROR(d->ActivationForward(activation_, s->h_RH, s->a_RF));
    MOE_RETURN_IF_ERROR(d->GroupedGemm(GroupedForm::kForward, s->a_RF, w_out_->value, offsets, 0, y_RD));
    return b_out_ ? d->GroupedBias(b_out_->value, offsets, y_RD) : absl::OkStatus();
  }

  absl::Status Backward(const ModuleContext& ctx, In x_RD, absl::Span<const int64_t> offsets, const ExpertSaved& s, In dy_RD, Out dx_RD) override {
    Device* d = ctx.device;
    MOE_RETURN_IF_ERROR(d->GroupedGemm(GroupedForm::kWeightGrad, dy_RD, s.a_RF, offsets, 1, w_out_->grad));
    if (b_out_) MOE_RETURN_IF_ERROR(d->GroupedBiasGrad(dy_RD, offsets, b_out_->grad));
    // Backward comes once, so what forward saved makes room for its own gradient as soon as nobody reads it any more.
    const TensorView &da = s.a_RF, &dh = s.h_RH;
    MOE_RETURN_IF_ERROR(d->GroupedGemm(GroupedForm::kInputGrad, dy_RD, w_out_->value, offsets, 0, da));
    MOE_RETURN_IF_ERROR(d->ActivationBackward(activation_, s.h_RH, da, dh));
    MOE_RETURN_IF_ERROR(d->GroupedGemm(GroupedForm::kWeightGrad, dh, x_RD, offsets, 1, w_in_->grad));
    if (b_in_) MOE_RETURN_IF_ERROR(d->GroupedBiasGrad(dh, offsets, b_in_->grad));
    return d->GroupedGemm(GroupedForm::kInputGrad, dh, w_in_->value, offsets, 0, dx_RD);
  }

 private:
  struct Part { const char* name; int64_t rows; };

  // A local tensor [e, sum of rows, columns] (columns 0: a bias [e, rows]) whose pieces are the parts of each expert.
  absl::StatusOr<Param*> Declare(ParamStore* store, const std::string& prefix, const std::string& suffix, const std::vector<Part>& parts, int64_t columns, double stddev) {
    Param p;
    p.name = prefix + suffix;
    p.kind = spec_.param_kind;
    p.init_stddev = stddev;
    p.decay = columns > 0;
    int64_t rows = 0, at = 0;
    for (const Part& part : parts) rows += part.rows;
    p.shape = {static_cast<int64_t>(spec_.local_experts.size()), rows};
    if (columns > 0) p.shape.push_back(columns);
    for (int64_t id : spec_.local_experts) {
      for (const Part& part : parts) {
        ParamPiece q;
        const std::string of = spec_.param_kind == ParamKind::kExpert ? absl::StrCat(prefix, ".experts.", id, ".") : prefix + ".";
        q.name = of + part.name + (columns > 0 ? ".weight" : ".bias");
        q.shape = {part.rows};
        if (columns > 0) q.shape.push_back(columns);
        q.global_shape = q.shape;
        q.begin.assign(q.shape.size(), 0);
        q.local_offset = at;
        at += q.size();
        p.pieces.push_back(std::move(q));
      }
    }
    return store->Declare(std::move(p));
  }

  ExpertSpec spec_;
  Activation activation_;
  Param *w_in_ = nullptr, *w_out_ = nullptr, *b_in_ = nullptr, *b_out_ = nullptr;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Expert>> MakeFfnExpert(const ExpertSpec& spec, Activation activation) {
  if (spec.d_model < 1 || spec.d_hidden < 1) return InvalidArgument("expert: d_model is ", spec.d_model, ", d_hidden is ", spec.d_hidden, "; both must be at least 1");
  for (size_t i = 0; i < spec.local_experts.size(); ++i) {
    const int64_t id = spec.local_experts[i];
    if (id < 0 || id >= spec.num_global_experts) return InvalidArgument("expert: local expert ", id, " is outside 0 .. ", spec.num_global_experts - 1, " (model.num_global_experts ", spec.num_global_experts, ")");
    if (i > 0 && id <= spec.local_experts[i - 1]) return InvalidArgument("expert: the local experts must ascend, ", id, " comes after ", spec.local_experts[i - 1]);
  }
  if (spec.param_kind == ParamKind::kDense && spec.local_experts.size() != 1) return InvalidArgument("expert: a dense layer is one network, not ", spec.local_experts.size());
  return std::unique_ptr<Expert>(new FfnExpert(spec, activation));
}

}  // namespace moe
