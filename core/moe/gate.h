// A gate decides which experts each token goes to and with which weight. Implementations: experts/gate/*.
//
// The layer calls Select, drops what capacity forbids, then Weigh; later Backward once. Ties go to the lower expert id;
// NaN or infinite scores are an error.
#ifndef MOE_CORE_MOE_GATE_H_
#define MOE_CORE_MOE_GATE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "core/config/config.pb.h"
#include "core/device/arena.h"
#include "core/moe/module_context.h"
#include "core/moe/parameter.h"

namespace moe {

struct GateSpec {
  int64_t d_model = 0, num_global_experts = 0, top_k = 0;
  double init_stddev = 0;          // of the router's matrix
  config::GateConfig config;
};

// The routing of one batch of T tokens; saved from forward for backward.
struct Routing {
  TensorView logits_TE;    // before softmax
  TensorView probs_TE;     // scores that the balancing loss uses
  TensorView lse_T;        // logsumexp of the logits
  TensorView ids_TK;       // int32, by descending selection score; -1: not routed (padding, or dropped after capacity)
  TensorView raw_TK;       // scores of the chosen, before renormalisation
  TensorView weights_TK;   // final weights, 0 where id is -1
  TensorView x_TD;         // the router's input where it differs from the layer's (jitter), else absent
  TensorView extra[2];     // a gate's own
};

class Gate {
 public:
  virtual ~Gate() = default;
  virtual std::string name() const = 0;
  virtual int64_t top_k() const = 0;
  // Declares the router's parameters under `prefix` ("layers.3.moe.gate").
  virtual absl::Status DeclareParams(ParamStore* store, const std::string& prefix) = 0;

  // Fills logits, probs, lse, ids and raw. valid_T (uint8, optional): tokens with 0 get id -1 everywhere.
  virtual absl::Status Select(const ModuleContext& ctx, In x_TD, In valid_T, Routing* r) = 0;
  // Fills weights from raw and the ids that are left (-1: weight 0). `selected_ids_TK` are the ids before dropping.
  virtual absl::Status Weigh(const ModuleContext& ctx, In selected_ids_TK, Routing* r) = 0;
  // Gradient of the weights and of the losses on scores:
  //   dprobs from dweights_TK, plus aux_E (optional) added to every row of dprobs of a valid token;
  //   dlogits from dprobs, plus z_coef * lse_T * softmax(logits).
  // Adds to the router's gradient and to dx_TD.
  virtual absl::Status Backward(const ModuleContext& ctx, In x_TD, In valid_T, const Routing& r, In dweights_TK, In aux_E, double z_coef, Out dx_TD) = 0;
};

}  // namespace moe
#endif  // MOE_CORE_MOE_GATE_H_
