#include "capi/layer_state.h"

#include <algorithm>

#include "capi/collective.h"
#include "core/device/host_copy.h"
#include "core/model/model.h"

namespace moe::capi {

absl::StatusOr<std::unique_ptr<LayerState>> LayerState::Make(const EngineState& engine, std::shared_ptr<Communicator> group) {
  const config::Config& c = engine.config;
  const config::ModelConfig& m = c.model();
  const MoeLayerSpec s = MakeMoeLayerSpec(c, "moe", /*residual=*/false);
  MOE_ASSIGN_OR_RETURN(const auto partition, engine.modules->MakePartition(c.partition()));
  MOE_ASSIGN_OR_RETURN(const Placement placement, partition->Place(m.num_global_experts(), group->size()));
  std::unique_ptr<LayerState> l(new LayerState(engine.device.get(), c.seed(), std::move(group)));
  MoeGroups groups;
  groups.ep = groups.batch = Several(l->group_);
  MOE_ASSIGN_OR_RETURN(l->layer_, MoeLayer::Make(s, placement, groups, *engine.modules));
  l->store_ = std::make_unique<ParamStore>(engine.device.get(), m.dtype() == "float64" ? DType::kF64 : DType::kF32);
  MOE_RETURN_IF_ERROR(l->layer_->DeclareParams(l->store_.get(), "moe"));
  MOE_RETURN_IF_ERROR(l->store_->Materialize(c.seed()));
  for (Param& p : l->store_->params())
    for (const ParamPiece& q : p.pieces) l->pieces_.emplace_back(&p, &q);
  return l;
}

ModuleContext LayerState::Context() {
  ModuleContext c;
  c.device = device_;
  c.arena = &arena_;
  c.training = true;
  c.noise_key = seed_ + 0x9e3779b97f4a7c15u * calls_;   // every call draws anew
  c.first_token = first_token_;
  return c;
}

absl::Status LayerState::Forward(const void* x, int64_t tokens, const uint8_t* valid, int64_t first_token, void* y) {
  has_forward_ = can_backward_ = false;
  saved_ = MoeSaved();
  sums_ = RoutingSums(1, layer_->spec().num_global_experts);
  sums_.tokens = tokens;
  first_token_ = first_token;
  ++calls_;
  MOE_RETURN_IF_ERROR(arena_.Reset());
  const int64_t D = layer_->spec().d_model;
  MOE_ASSIGN_OR_RETURN(const TensorView x_TD, arena_.Make(store_->dtype(), {tokens, D}));
  MOE_ASSIGN_OR_RETURN(const TensorView y_TD, arena_.Make(store_->dtype(), {tokens, D}));
  MOE_RETURN_IF_ERROR(device_->CopyFromHost(x_TD, x));
  TensorView valid_T;
  if (valid != nullptr) {
    MOE_ASSIGN_OR_RETURN(valid_T, arena_.Make(DType::kU8, {tokens}));
    MOE_RETURN_IF_ERROR(device_->CopyFromHost(valid_T, valid));
    sums_.tokens = std::count_if(valid, valid + tokens, [](uint8_t v) { return v != 0; });
  }
  MOE_RETURN_IF_ERROR(layer_->Forward(Context(), x_TD, valid_T, false, &saved_, y_TD, &sums_, 0));
  MOE_RETURN_IF_ERROR(sums_.Reduce(Several(group_)));
  MOE_RETURN_IF_ERROR(device_->CopyToHost(y, y_TD));
  has_forward_ = can_backward_ = true;
  return absl::OkStatus();
}

absl::Status LayerState::Backward(const void* dy, double scale, void* dx) {
  can_backward_ = false;
  const DType t = store_->dtype();
  RoutingLosses losses = Losses();
  TensorView aux_E;
  if (!losses.aux_gradient.empty() && scale != 0) {
    for (double& g : losses.aux_gradient) g *= scale;
    const int64_t E = static_cast<int64_t>(losses.aux_gradient.size());
    MOE_ASSIGN_OR_RETURN(aux_E, DoublesToDevice(&arena_, t, {E}, losses.aux_gradient.data()));
  }
  MOE_ASSIGN_OR_RETURN(const TensorView dy_TD, arena_.Make(t, saved_.x_TD.shape()));
  MOE_ASSIGN_OR_RETURN(const TensorView dx_TD, arena_.Make(t, saved_.x_TD.shape()));
  MOE_RETURN_IF_ERROR(device_->CopyFromHost(dy_TD, dy));
  MOE_RETURN_IF_ERROR(layer_->Backward(Context(), dy_TD, saved_, aux_E, scale * losses.z_coef, dx_TD));
  return device_->CopyToHost(dx, dx_TD);
}

absl::Status LayerState::Routing(int32_t* ids, void* weights) const {
  if (ids != nullptr) MOE_RETURN_IF_ERROR(device_->CopyToHost(ids, saved_.routing.ids_TK));
  if (weights != nullptr) MOE_RETURN_IF_ERROR(device_->CopyToHost(weights, saved_.routing.weights_TK));
  return absl::OkStatus();
}

}  // namespace moe::capi
