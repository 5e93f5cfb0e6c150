#include "experts/gate/switch_gate.h"

#include "experts/gate/softmax_router.h"

namespace moe {
namespace {

class SwitchGate : public Gate {
 public:
  explicit SwitchGate(const GateSpec& spec) : jitter_(spec.config.jitter()), router_(spec) {}
  std::string name() const override { return "switch"; }
  int64_t top_k() const override { return 1; }
  absl::Status DeclareParams(ParamStore* store, const std::string& prefix) override { return router_.DeclareParams(store, prefix); }

  absl::Status Select(const ModuleContext& ctx, In x_TD, In valid_T, Routing* r) override {
    *r = Routing();
    if (!ctx.training || jitter_ == 0) return router_.Select(ctx, x_TD, valid_T, r);
    MOE_ASSIGN_OR_RETURN(r->extra[0], ctx.arena->Make(x_TD.dtype(), x_TD.shape()));
    MOE_ASSIGN_OR_RETURN(r->x_TD, ctx.arena->Make(x_TD.dtype(), x_TD.shape()));
    MOE_RETURN_IF_ERROR(TokenNoise(ctx, 1 - jitter_, 1 + jitter_, r->extra[0]));
    MOE_RETURN_IF_ERROR(ctx.device->Multiply(x_TD, r->extra[0], r->x_TD));
    return router_.Select(ctx, r->x_TD, valid_T, r);
  }

  absl::Status Weigh(const ModuleContext& ctx, In selected_TK, Routing* r) override {
    r->weights_TK = r->raw_TK;
    return selected_TK.data() == r->ids_TK.data() ? absl::OkStatus() : ZeroDropped(ctx, r->ids_TK, &r->weights_TK);
  }

  absl::Status Backward(const ModuleContext& ctx, In x_TD, In valid_T, const Routing& r, In dweights_TK, In aux_E, double z_coef, Out dx_TD) override {
    if (!r.extra[0].defined()) return router_.Backward(ctx, x_TD, valid_T, r.ids_TK, r, dweights_TK, aux_E, z_coef, dx_TD);
    MOE_ASSIGN_OR_RETURN(TensorView dnoisy, ctx.arena->Make(x_TD.dtype(), x_TD.shape()));
    MOE_RETURN_IF_ERROR(ctx.device->Fill(dnoisy, 0));
    MOE_RETURN_IF_ERROR(router_.Backward(ctx, x_TD, valid_T, r.ids_TK, r, dweights_TK, aux_E, z_coef, dnoisy));
    MOE_RETURN_IF_ERROR(ctx.device->Multiply(dnoisy, r.extra[0], dnoisy));
    return ctx.device->Axpy(1, dnoisy, dx_TD);
  }

 private:
  double jitter_;
  SoftmaxRouter router_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Gate>> MakeSwitchGate(const GateSpec& spec) {
  if (spec.top_k != 1) return InvalidArgument("model.top_k is ", spec.top_k, "; gate.kind=switch routes each token to one expert: set model.top_k=1");
  MOE_RETURN_IF_ERROR(CheckGateSpec(spec));
  return std::unique_ptr<Gate>(new SwitchGate(spec));
}

}  // namespace moe
