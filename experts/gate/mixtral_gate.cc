#include "experts/gate/mixtral_gate.h"

#include "experts/gate/softmax_router.h"

namespace moe {
namespace {

class MixtralGate : public Gate {
 public:
  explicit MixtralGate(const GateSpec& spec) : top_k_(spec.top_k), router_(spec) {}
  std::string name() const override { return "mixtral"; }
  int64_t top_k() const override { return top_k_; }
  absl::Status DeclareParams(ParamStore* store, const std::string& prefix) override { return router_.DeclareParams(store, prefix); }

  absl::Status Select(const ModuleContext& ctx, In x_TD, In valid_T, Routing* r) override {
    *r = Routing();
    return router_.Select(ctx, x_TD, valid_T, r);
  }

  // Renormalised over the K that were chosen, then dropped: a token that loses a route gets less.
  absl::Status Weigh(const ModuleContext& ctx, In selected_TK, Routing* r) override {
    r->extra[0] = selected_TK;   // backward differentiates the sum over all K
    MOE_ASSIGN_OR_RETURN(r->weights_TK, ctx.arena->Make(r->raw_TK.dtype(), r->raw_TK.shape()));
    MOE_RETURN_IF_ERROR(ctx.device->NormalizeRows(r->raw_TK, 0, 1, r->weights_TK));
    return selected_TK.data() == r->ids_TK.data() ? absl::OkStatus() : ZeroDropped(ctx, r->ids_TK, &r->weights_TK);
  }

  // The weights' gradient is 0 at dropped routes (combine sees to it), so the sum's derivative needs no mask of its own.
  absl::Status Backward(const ModuleContext& ctx, In x_TD, In valid_T, const Routing& r, In dweights_TK, In aux_E, double z_coef, Out dx_TD) override {
    MOE_ASSIGN_OR_RETURN(TensorView draw, ctx.arena->Make(dweights_TK.dtype(), dweights_TK.shape()));
    MOE_RETURN_IF_ERROR(ctx.device->NormalizeRowsBackward(r.raw_TK, 0, 1, dweights_TK, draw));
    return router_.Backward(ctx, x_TD, valid_T, r.extra[0], r, draw, aux_E, z_coef, dx_TD);
  }

 private:
  int64_t top_k_;
  SoftmaxRouter router_;
};

}  // namespace

std::string MixtralTopOneWarning() {
  return "gate.kind=mixtral with model.top_k=1 divides the one weight by itself: it is always 1 and the router learns nothing from the loss; use gate.kind=switch";
}

absl::StatusOr<std::unique_ptr<Gate>> MakeMixtralGate(const GateSpec& spec) {
  MOE_RETURN_IF_ERROR(CheckGateSpec(spec));
  if (spec.config.jitter() != 0) return InvalidArgument("gate.jitter is ", spec.config.jitter(), ", but gate.kind=mixtral has no jitter: set gate.jitter=0 or gate.kind=switch");
  return std::unique_ptr<Gate>(new MixtralGate(spec));
}

}  // namespace moe
