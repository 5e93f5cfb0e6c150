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

  absl::Status Select(const ModuleContext& ctx, In x_TD, In valid_T, Routing* r) override { return router_.Select(ctx, x_TD, valid_T, r); }

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

absl::StatusOr<std::unique_ptr<Gate>> MakeMixtralGate(const GateSpec& spec) {
  if (spec.top_k < 1 || spec.top_k > spec.num_global_experts)
    return InvalidArgument("model.top_k is ", spec.top_k, ", must be between 1 and model.num_global_experts, which is ", spec.num_global_experts);
  return std::unique_ptr<Gate>(new MixtralGate(spec));
}

}  // namespace moe
