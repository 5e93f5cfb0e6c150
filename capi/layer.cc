#include <algorithm>
#include <cstring>

#include "capi/internal.h"
#include "core/comm/agree.h"
#include "core/moe/moe_layer.h"

using moe::capi::Catch;
using moe::capi::Enter;
using moe::capi::EngineState;
using moe::capi::NullArgument;
using moe::capi::Several;

struct moe_layer {
  std::shared_ptr<EngineState> state;
  std::shared_ptr<moe::Communicator> group;
  std::unique_ptr<moe::MoeLayer> layer;
  std::unique_ptr<moe::ParamStore> store;
  std::unique_ptr<moe::Arena> arena;
  std::vector<std::pair<moe::Param*, const moe::ParamPiece*>> pieces;
  // Of the last forward.
  moe::MoeSaved saved;
  moe::RoutingSums sums;
  bool has_forward = false, can_backward = false;
  uint64_t calls = 0;

  moe::ModuleContext Context(bool training) const {
    moe::ModuleContext c;
    c.device = state->device.get();
    c.arena = arena.get();
    c.training = training;
    c.noise_key = state->config.seed() + 0x9e3779b97f4a7c15ull * calls;
    return c;
  }
};

namespace {

absl::StatusOr<std::unique_ptr<moe_layer>> Make(const std::shared_ptr<EngineState>& state, const std::shared_ptr<moe::Communicator>& group) {
  auto l = std::make_unique<moe_layer>();
  l->state = state;
  l->group = group;
  const moe::config::Config& c = state->config;
  const moe::config::ModelConfig& m = c.model();
  const moe::DType dtype = m.dtype() == "float64" ? moe::DType::kF64 : moe::DType::kF32;
  moe::MoeLayerSpec s;
  s.name = "moe";
  s.d_model = m.d_model();
  s.d_hidden = m.d_hidden();
  s.num_global_experts = m.num_global_experts();
  s.top_k = m.top_k();
  s.init_stddev_router = moe::SmallInitStddev(m);
  s.init_stddev_in = moe::InitStddev(m, m.d_model(), false);
  s.init_stddev_out = moe::InitStddev(m, m.d_hidden(), false);
  s.gate = c.gate();
  s.expert = c.expert();
  MOE_ASSIGN_OR_RETURN(auto partition, state->modules->MakePartition(c.partition()));
  MOE_ASSIGN_OR_RETURN(moe::Placement placement, partition->Place(m.num_global_experts(), group->size()));
  moe::MoeGroups groups;
  groups.ep = groups.batch = Several(group);
  MOE_ASSIGN_OR_RETURN(l->layer, moe::MoeLayer::Make(s, placement, groups, *state->modules));
  l->store = std::make_unique<moe::ParamStore>(state->device.get(), dtype);
  MOE_RETURN_IF_ERROR(l->layer->DeclareParams(l->store.get(), "moe"));
  MOE_RETURN_IF_ERROR(l->store->Materialize(c.seed()));
  l->arena = std::make_unique<moe::Arena>(state->device.get());
  for (moe::Param& p : l->store->params())
    for (const moe::ParamPiece& q : p.pieces) l->pieces.emplace_back(&p, &q);
  return l;
}

absl::Status CheckForward(const void* x, int64_t tokens, const void* y) {
  if (tokens < 0) return moe::InvalidArgument("num_tokens is ", tokens, ", must be >= 0");
  if (tokens > 0 && x == nullptr) return NullArgument("x");
  if (tokens > 0 && y == nullptr) return NullArgument("y");
  return absl::OkStatus();
}

absl::Status Forward(moe_layer* l, const void* x, int64_t tokens, const uint8_t* valid, void* y, moe_layer_stats* stats) {
  moe::Device* d = l->state->device.get();
  // Bad arguments of one rank must not strand the others.
  MOE_RETURN_IF_ERROR(moe::Agree(Several(l->group), CheckForward(x, tokens, y)));
  l->has_forward = l->can_backward = false;
  MOE_RETURN_IF_ERROR(l->arena->Reset());
  ++l->calls;
  const moe::ModuleContext ctx = l->Context(true);
  const int64_t D = l->layer->spec().d_model, E = l->layer->spec().num_global_experts;
  MOE_ASSIGN_OR_RETURN(moe::TensorView x_TD, l->arena->Make(l->store->dtype(), {tokens, D}));
  MOE_ASSIGN_OR_RETURN(moe::TensorView y_TD, l->arena->Make(l->store->dtype(), {tokens, D}));
  MOE_RETURN_IF_ERROR(d->CopyFromHost(x_TD, x));
  moe::TensorView valid_T;
  int64_t count = tokens;
  if (valid != nullptr) {
    MOE_ASSIGN_OR_RETURN(valid_T, l->arena->Make(moe::DType::kU8, {tokens}));
    MOE_RETURN_IF_ERROR(d->CopyFromHost(valid_T, valid));
    count = std::count_if(valid, valid + tokens, [](uint8_t v) { return v != 0; });
  }
  l->saved = moe::MoeSaved();
  l->sums = moe::RoutingSums(1, E);
  MOE_RETURN_IF_ERROR(l->layer->Forward(ctx, x_TD, valid_T, false, &l->saved, y_TD, &l->sums, 0));
  l->sums.tokens = count;
  MOE_RETURN_IF_ERROR(l->sums.Reduce(Several(l->group)));
  MOE_RETURN_IF_ERROR(d->CopyToHost(y, y_TD));
  l->has_forward = l->can_backward = true;
  if (stats) {
    const moe::RoutingLosses losses = moe::ComputeRoutingLosses(l->layer->spec().gate, l->layer->spec().top_k, l->sums);
    moe_layer_stats out{};
    out.aux_loss = losses.aux;
    out.z_loss = losses.z;
    out.tokens = l->sums.tokens;
    out.dropped_routes = l->sums.dropped;
    moe::capi::WriteStruct(out, stats);
  }
  return absl::OkStatus();
}

absl::Status Backward(moe_layer* l, const void* dy, double scale, void* dx) {
  moe::Device* d = l->state->device.get();
  const int64_t tokens = l->has_forward ? l->saved.x_TD.dim(0) : 0;
  absl::Status mine;
  if (!l->can_backward) mine = moe::FailedPrecondition("moe_layer_backward needs a moe_layer_forward before it, once each");
  else if (tokens > 0 && dy == nullptr) mine = NullArgument("dy");
  else if (tokens > 0 && dx == nullptr) mine = NullArgument("dx");
  MOE_RETURN_IF_ERROR(moe::Agree(Several(l->group), mine));
  l->can_backward = false;
  const moe::ModuleContext ctx = l->Context(true);
  const moe::DType t = l->store->dtype();
  const int64_t E = l->layer->spec().num_global_experts;
  moe::RoutingLosses losses = moe::ComputeRoutingLosses(l->layer->spec().gate, l->layer->spec().top_k, l->sums);
  moe::TensorView aux;
  if (!losses.aux_gradient.empty() && scale != 0) {
    for (double& g : losses.aux_gradient) g *= scale;
    MOE_ASSIGN_OR_RETURN(moe::TensorView wide, l->arena->Make(moe::DType::kF64, {E}));
    MOE_RETURN_IF_ERROR(d->CopyFromHost(wide, losses.aux_gradient.data()));
    MOE_ASSIGN_OR_RETURN(aux, l->arena->Make(t, {E}));
    MOE_RETURN_IF_ERROR(d->Copy(wide, aux));
  }
  MOE_ASSIGN_OR_RETURN(moe::TensorView dy_TD, l->arena->Make(t, l->saved.x_TD.shape()));
  MOE_ASSIGN_OR_RETURN(moe::TensorView dx_TD, l->arena->Make(t, l->saved.x_TD.shape()));
  MOE_RETURN_IF_ERROR(d->CopyFromHost(dy_TD, dy));
  MOE_RETURN_IF_ERROR(l->layer->Backward(ctx, dy_TD, l->saved, aux, scale * losses.z_coef, dx_TD));
  return d->CopyToHost(dx, dx_TD);
}

}  // namespace

extern "C" {

moe_status* moe_layer_create(moe_engine* engine, moe_group* group, moe_layer** layer) {
  return Catch([&]() -> absl::Status {
    if (engine == nullptr) return NullArgument("engine");
    if (group == nullptr) return NullArgument("group");
    if (layer == nullptr) return NullArgument("layer");
    if (group->state != engine->state) return moe::InvalidArgument("group was made by another engine");
    return Enter(engine->state, [&]() -> absl::Status {
      MOE_ASSIGN_OR_RETURN(auto made, Make(engine->state, group->comm));
      *layer = made.release();
      return absl::OkStatus();
    });
  });
}

moe_status* moe_layer_forward(moe_layer* layer, const void* x, int64_t num_tokens, const uint8_t* token_valid, void* y, moe_layer_stats* stats) {
  return Catch([&]() -> absl::Status {
    if (layer == nullptr) return NullArgument("layer");
    if (stats) MOE_RETURN_IF_ERROR(moe::capi::ReadStruct("stats", stats).status());
    return Enter(layer->state, [&] { return Forward(layer, x, num_tokens, token_valid, y, stats); });
  });
}

moe_status* moe_layer_backward(moe_layer* layer, const void* dy, double aux_loss_scale, void* dx) {
  return Catch([&]() -> absl::Status {
    if (layer == nullptr) return NullArgument("layer");
    return Enter(layer->state, [&] { return Backward(layer, dy, aux_loss_scale, dx); });
  });
}

moe_status* moe_layer_zero_grad(moe_layer* layer) {
  return Catch([&]() -> absl::Status {
    if (layer == nullptr) return NullArgument("layer");
    return Enter(layer->state, [&] { return layer->store->ZeroGrad(); });
  });
}

moe_status* moe_layer_expert_count(const moe_layer* layer, int64_t* expert_count, int64_t n) {
  return Catch([&]() -> absl::Status {
    if (layer == nullptr) return NullArgument("layer");
    if (expert_count == nullptr) return NullArgument("expert_count");
    if (!layer->has_forward) return moe::FailedPrecondition("no moe_layer_forward yet");
    if (n != layer->sums.experts) return moe::InvalidArgument("n is ", n, ", must be num_global_experts, which is ", layer->sums.experts);
    std::copy(layer->sums.count.begin(), layer->sums.count.end(), expert_count);
    return absl::OkStatus();
  });
}

moe_status* moe_layer_routing(const moe_layer* layer, int32_t* ids, void* weights) {
  return Catch([&]() -> absl::Status {
    if (layer == nullptr) return NullArgument("layer");
    if (!layer->has_forward) return moe::FailedPrecondition("no moe_layer_forward yet");
    return Enter(layer->state, [&]() -> absl::Status {
      if (ids) MOE_RETURN_IF_ERROR(layer->state->device->CopyToHost(ids, layer->saved.routing.ids_TK));
      if (weights) MOE_RETURN_IF_ERROR(layer->state->device->CopyToHost(weights, layer->saved.routing.weights_TK));
      return absl::OkStatus();
    });
  });
}

int64_t moe_layer_num_parameters(const moe_layer* layer) { return layer ? static_cast<int64_t>(layer->pieces.size()) : -1; }

moe_status* moe_layer_parameter(moe_layer* layer, int64_t index, moe_parameter* parameter) {
  return Catch([&]() -> absl::Status {
    if (layer == nullptr) return NullArgument("layer");
    MOE_RETURN_IF_ERROR(moe::capi::ReadStruct("parameter", parameter).status());
    if (index < 0 || index >= static_cast<int64_t>(layer->pieces.size())) return absl::OutOfRangeError(absl::StrCat("index is ", index, ", the layer has ", layer->pieces.size(), " parameters"));
    moe::capi::DescribeParameter(*layer->pieces[index].first, *layer->pieces[index].second, parameter);
    return absl::OkStatus();
  });
}

void moe_layer_destroy(moe_layer* layer) { delete layer; }

}  // extern "C"
