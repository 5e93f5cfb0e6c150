// One MoE layer: route -> plan -> dispatch -> experts -> combine, each step with its explicit backward.
//
// Every rank of the expert-parallel and of the expert-tensor-parallel group takes part in every call, with any number of tokens
// including none.
#ifndef MOE_CORE_MOE_MOE_LAYER_H_
#define MOE_CORE_MOE_MOE_LAYER_H_

#include <memory>
#include <string>

#include "core/moe/dispatch_plan.h"
#include "core/moe/etp_exchange.h"
#include "core/moe/losses.h"
#include "core/moe/modules.h"

namespace moe {

struct MoeLayerSpec {
  std::string name;             // for messages: "layers.3.moe"
  int64_t d_model = 0, d_hidden = 0, num_global_experts = 0, top_k = 0;
  double init_stddev_router = 0, init_stddev_in = 0, init_stddev_out = 0;
  config::GateConfig gate;
  config::ExpertConfig expert;
};

// Ranks that the layer works with; null: this rank alone.
struct MoeGroups {
  Communicator* ep = nullptr;      // share the experts
  Communicator* etp = nullptr;     // share the inner width of every expert; each member brings its own tokens
  Communicator* batch = nullptr;   // hold parts of the batch: all ranks of the stage (capacity over all tokens)
};

// What forward keeps for backward. Tensors live in the context's arena.
struct MoeSaved {
  TensorView x_TD, valid_T;
  Routing routing;
  std::shared_ptr<DispatchPlan> plan;
  TensorView token_N, pos_TK, expert_order, arrival_order;   // the plan's indices on the device
  std::shared_ptr<EtpExchange> etp;   // null: nobody shares the experts' inner width
  // The experts' input: the plan's R rows or, where ranks share the inner width, those of all of them.
  TensorView rows_RD;
  ExpertSaved expert;
  TensorView out_ND;        // the experts' outputs back at their tokens' rank
};

class MoeLayer {
 public:
  static absl::StatusOr<std::unique_ptr<MoeLayer>> Make(const MoeLayerSpec& spec, const Placement& placement, const MoeGroups& groups, const ModuleFactory& modules);

  // "<prefix>.gate.weight", "<prefix>.experts.<id>..."
  absl::Status DeclareParams(ParamStore* store, const std::string& prefix);

  // y_TD = the layer's output, or y_TD += with `accumulate`. The routing of this call is added to row `layer_index` of `sums`
  // (counts, probabilities, z, dropped routes; the number of tokens is the caller's, once per batch).
  absl::Status Forward(const ModuleContext& ctx, In x_TD, In valid_T, bool accumulate, MoeSaved* saved, Out y_TD, RoutingSums* sums, int64_t layer_index);
  // aux_E (device tensor, optional) and z_coef as in Gate::Backward. dx is overwritten. Once per forward: what that saved is
  // used up.
  absl::Status Backward(const ModuleContext& ctx, In dy_TD, const MoeSaved& saved, In aux_E, double z_coef, Out dx_TD);

  const Placement& placement() const { return placement_; }
  const MoeLayerSpec& spec() const { return spec_; }

 private:
  MoeLayer(const MoeLayerSpec& spec, const Placement& placement, const MoeGroups& groups) : spec_(spec), placement_(placement), groups_(groups) {}
  // Tells the groups which layer the coming operations are of.
  void Announce() const;
  absl::Status Route(const ModuleContext& ctx, MoeSaved* s, RoutingSums* sums, int64_t layer_index);
  // The part of it that is this rank's alone: ids on the host, sums.
  absl::Status Select(const ModuleContext& ctx, MoeSaved* s, RoutingSums* sums, int64_t layer_index, std::vector<int32_t>* ids, std::vector<double>* scores, int64_t* valid_tokens);
  // Rows of `send` to where the plan sends them (or back, with `reverse`).
  absl::Status Exchange(const DispatchPlan& plan, bool reverse, In send, Out recv);
  // From rows in the plan's order of sending to rows in order of this rank's experts, by way of the expert-parallel group; the
  // same tensor where that has one rank.
  absl::StatusOr<TensorView> Dispatch(const ModuleContext& ctx, const MoeSaved& s, In rows_ND);
  // The experts' input in forward, and the part of it that only expert-parallel ranks do together.
  absl::Status GatherInput(const ModuleContext& ctx, MoeSaved* s, RoutingSums* sums, int64_t layer_index);
  absl::Status DispatchInput(const ModuleContext& ctx, MoeSaved* s, RoutingSums* sums, int64_t layer_index);
  // From the experts' (partial) outputs to rows in the order of sending.
  absl::Status Return(const ModuleContext& ctx, const MoeSaved& s, In rows_RD, Out rows_ND);

  MoeLayerSpec spec_;
  Placement placement_;
  MoeGroups groups_;
  std::unique_ptr<Gate> gate_;
  std::unique_ptr<Expert> expert_;
};

}  // namespace moe
#endif  // MOE_CORE_MOE_MOE_LAYER_H_
