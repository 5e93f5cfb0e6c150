// What gates that score with a softmax over all experts share: the router's matrix, its logits and scores, and the way back
// from gradients of the chosen scores to the router and its input.
#ifndef MOE_EXPERTS_GATE_SOFTMAX_ROUTER_H_
#define MOE_EXPERTS_GATE_SOFTMAX_ROUTER_H_

#include <string>

#include "core/moe/gate.h"

namespace moe {

class SoftmaxRouter {
 public:
  explicit SoftmaxRouter(const GateSpec& spec) : spec_(spec) {}
  // "<prefix>.weight" [E, D].
  absl::Status DeclareParams(ParamStore* store, const std::string& prefix);
  // l = x W^T; p = softmax(l); ids = the K largest of p; raw = their scores. Tokens with valid 0 get id -1, and the router
  // sees zeros in their place (r->x_TD), so that whatever padding holds, NaN too, reaches nothing.
  absl::Status Select(const ModuleContext& ctx, In x_TD, In valid_T, Routing* r);
  // From the gradient of the scores of `ids_TK`; see Gate::Backward.
  absl::Status Backward(const ModuleContext& ctx, In x_TD, In valid_T, In ids_TK, const Routing& r, In draw_TK, In aux_E, double z_coef, Out dx_TD);

 private:
  GateSpec spec_;
  Param* weight_ = nullptr;
};

// Whether this many experts can be chosen among that many; names the fields.
absl::Status CheckGateSpec(const GateSpec& spec);

// weights[t,k] = 0 where ids[t,k] is -1 (dropped or padding). Keeps the rest.
absl::Status ZeroDropped(const ModuleContext& ctx, In ids_TK, TensorView* weights_TK);

}  // namespace moe
#endif  // MOE_EXPERTS_GATE_SOFTMAX_ROUTER_H_
