#include "core/moe/moe_layer.h"

#include <algorithm>

#include "core/comm/agree.h"
#include "core/device/host_copy.h"
#include "core/moe/capacity.h"

namespace moe {
namespace {

// Adds what the losses need of this call to row `layer` of the sums.
absl::Status AddToSums(const ModuleContext& ctx, const Routing& r, In valid_T, int64_t layer, RoutingSums* sums) {
  Device* d = ctx.device;
  TensorView probs = r.probs_TE, lse = r.lse_T;
  if (valid_T.defined()) {
    MOE_ASSIGN_OR_RETURN(probs, ctx.arena->Make(probs.dtype(), probs.shape()));
    MOE_ASSIGN_OR_RETURN(lse, ctx.arena->Make(lse.dtype(), lse.shape()));
    MOE_RETURN_IF_ERROR(d->Copy(r.probs_TE, probs));
    MOE_RETURN_IF_ERROR(d->Copy(r.lse_T, lse));
    MOE_RETURN_IF_ERROR(d->MaskRows(valid_T, probs));
    MOE_RETURN_IF_ERROR(d->MaskRows(valid_T, lse.Reshape({lse.dim(0), 1})));
  }
  MOE_ASSIGN_OR_RETURN(TensorView column, ctx.arena->Make(probs.dtype(), {probs.dim(1)}));
  MOE_RETURN_IF_ERROR(d->ColumnSum(probs, column, false));
  MOE_ASSIGN_OR_RETURN(std::vector<double> p, ToHostDoubles(d, column));
  for (size_t e = 0; e < p.size(); ++e) sums->prob[layer * sums->experts + static_cast<int64_t>(e)] += p[e];
  MOE_ASSIGN_OR_RETURN(double lse2, d->SumSquares(lse));
  sums->lse2[layer] += lse2;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<MoeLayer>> MoeLayer::Make(const MoeLayerSpec& spec, const Placement& placement, const MoeGroups& groups, const ModuleFactory& modules) {
  if (placement.num_global_experts() != spec.num_global_experts)
    return InvalidArgument(spec.name, ": the placement has ", placement.num_global_experts(), " experts, num_global_experts is ", spec.num_global_experts);
  const int64_t ep = groups.ep ? groups.ep->size() : 1;
  if (placement.ep() != ep) return InvalidArgument(spec.name, ": the placement is for ", placement.ep(), " ranks, the expert-parallel group has ", ep);
  std::unique_ptr<MoeLayer> layer(new MoeLayer(spec, placement, groups));
  GateSpec g;
  g.d_model = spec.d_model;
  g.num_global_experts = spec.num_global_experts;
  g.top_k = spec.top_k;
  g.init_stddev = spec.init_stddev_router;
  g.config = spec.gate;
  MOE_ASSIGN_OR_RETURN(layer->gate_, modules.MakeGate(g));
  ExpertSpec e;
  e.d_model = spec.d_model;
  e.d_hidden = spec.d_hidden;
  e.num_global_experts = spec.num_global_experts;
  e.local_experts = placement.experts_of(groups.ep ? groups.ep->rank() : 0);
  e.init_stddev_in = spec.init_stddev_in;
  e.init_stddev_out = spec.init_stddev_out;
  e.config = spec.expert;
  MOE_ASSIGN_OR_RETURN(layer->expert_, modules.MakeExpert(e));
  return layer;
}

absl::Status MoeLayer::DeclareParams(ParamStore* store, const std::string& prefix) {
  MOE_RETURN_IF_ERROR(gate_->DeclareParams(store, prefix + ".gate"));
  return expert_->DeclareParams(store, prefix);
}

absl::Status MoeLayer::Select(const ModuleContext& ctx, MoeSaved* s, RoutingSums* sums, int64_t layer_index, std::vector<int32_t>* ids, std::vector<double>* scores, int64_t* valid_tokens) {
  Device* d = ctx.device;
  Routing& r = s->routing;
  MOE_RETURN_IF_ERROR(gate_->Select(ctx, s->x_TD, s->valid_T, &r));
  ids->resize(r.ids_TK.size());
  MOE_RETURN_IF_ERROR(d->CopyToHost(ids->data(), r.ids_TK));
  for (int32_t id : *ids)
    if (id >= 0) ++sums->count[layer_index * sums->experts + id];
  MOE_RETURN_IF_ERROR(AddToSums(ctx, r, s->valid_T, layer_index, sums));
  if (!spec_.gate.has_capacity_factor()) return absl::OkStatus();
  *valid_tokens = s->x_TD.dim(0);
  if (s->valid_T.defined()) {
    std::vector<uint8_t> v(*valid_tokens);
    MOE_RETURN_IF_ERROR(d->CopyToHost(v.data(), s->valid_T));
    *valid_tokens = std::count_if(v.begin(), v.end(), [](uint8_t b) { return b != 0; });
  }
  MOE_ASSIGN_OR_RETURN(*scores, ToHostDoubles(d, r.raw_TK));
  return absl::OkStatus();
}

absl::Status MoeLayer::Route(const ModuleContext& ctx, MoeSaved* s, RoutingSums* sums, int64_t layer_index) {
  Routing& r = s->routing;
  const int64_t top_k = gate_->top_k();
  std::vector<int32_t> ids;
  std::vector<double> scores;
  int64_t valid_tokens = 0;
  // What goes wrong on one rank (a NaN, a failing gate) must not leave the others waiting: it travels with the next exchange.
  absl::Status mine = Annotate(Select(ctx, s, sums, layer_index, &ids, &scores, &valid_tokens), spec_.name);
  const TensorView selected = r.ids_TK;
  if (spec_.gate.has_capacity_factor()) {
    MOE_RETURN_IF_ERROR(Agree(groups_.batch, mine));
    MOE_ASSIGN_OR_RETURN(CapacityResult c, ApplyCapacity(spec_.gate, spec_.num_global_experts, top_k, valid_tokens, scores, groups_.batch, &ids));
    sums->dropped += c.dropped;
    MOE_ASSIGN_OR_RETURN(r.ids_TK, ToDevice(ctx.arena, DType::kI32, selected.shape(), ids.data()));
  }
  if (mine.ok()) mine = Annotate(gate_->Weigh(ctx, selected, &r), spec_.name);
  if (!mine.ok()) ids.clear();
  MOE_ASSIGN_OR_RETURN(DispatchPlan plan, DispatchPlan::Make(ids, top_k, placement_, groups_.ep, mine));
  s->plan = std::make_shared<DispatchPlan>(std::move(plan));
  MOE_ASSIGN_OR_RETURN(s->token_N, ToDevice(ctx.arena, DType::kI32, {s->plan->num_sent()}, s->plan->token_N().data()));
  MOE_ASSIGN_OR_RETURN(s->pos_TK, ToDevice(ctx.arena, DType::kI32, {s->x_TD.dim(0), top_k}, s->plan->pos_TK().data()));
  if (groups_.ep && groups_.ep->size() > 1) {
    MOE_ASSIGN_OR_RETURN(s->expert_order, ToDevice(ctx.arena, DType::kI32, {s->plan->num_received()}, s->plan->expert_order().data()));
    MOE_ASSIGN_OR_RETURN(s->arrival_order, ToDevice(ctx.arena, DType::kI32, {s->plan->num_received()}, s->plan->arrival_order().data()));
  }
  return absl::OkStatus();
}

absl::Status MoeLayer::Exchange(const DispatchPlan& plan, bool reverse, In send, Out recv) {
  const int64_t row = spec_.d_model * SizeOf(send.dtype()), n = groups_.ep->size();
  std::vector<int64_t> bytes[2], offset[2];   // of what is sent forward, of what is received forward
  for (int side = 0; side < 2; ++side) {
    int64_t at = 0;
    for (int64_t r = 0; r < n; ++r) {
      bytes[side].push_back((side == 0 ? plan.send_rows() : plan.recv_rows())[r] * row);
      offset[side].push_back(at);
      at += bytes[side].back();
    }
  }
  AllToAllV a;
  a.send = send.data();
  a.recv = recv.data();
  a.send_bytes = bytes[reverse];
  a.send_offsets = offset[reverse];
  a.recv_bytes = bytes[!reverse];
  a.recv_offsets = offset[!reverse];
  a.counts_agreed = true;
  return Annotate(RunAllToAllV(groups_.ep, a), absl::StrCat(spec_.name, reverse ? " (combine)" : " (dispatch)"));
}

absl::Status MoeLayer::Forward(const ModuleContext& ctx, In x_TD, In valid_T, bool accumulate, MoeSaved* s, Out y_TD, RoutingSums* sums, int64_t layer_index) {
  Device* d = ctx.device;
  s->x_TD = x_TD;
  s->valid_T = valid_T;
  MOE_RETURN_IF_ERROR(Route(ctx, s, sums, layer_index));
  const DispatchPlan& plan = *s->plan;
  const bool exchange = groups_.ep && groups_.ep->size() > 1;
  const DType t = x_TD.dtype();
  const int64_t D = spec_.d_model, N = plan.num_sent(), R = plan.num_received();
  MOE_ASSIGN_OR_RETURN(s->rows_RD, ctx.arena->Make(t, {R, D}));
  MOE_ASSIGN_OR_RETURN(s->out_ND, ctx.arena->Make(t, {N, D}));
  if (!exchange) {
    MOE_RETURN_IF_ERROR(d->GatherRows(x_TD, s->token_N, s->rows_RD));
    MOE_RETURN_IF_ERROR(Annotate(expert_->Forward(ctx, s->rows_RD, plan.offsets(), &s->expert, s->out_ND), spec_.name));
  } else {
    // What the wire carries is scratch; only rows_RD and out_ND stay for backward.
    const TensorView& sent = s->out_ND;
    MOE_ASSIGN_OR_RETURN(TensorView arrived, ctx.arena->Make(t, {R, D}));
    MOE_RETURN_IF_ERROR(d->GatherRows(x_TD, s->token_N, sent));
    MOE_RETURN_IF_ERROR(Exchange(plan, false, sent, arrived));
    MOE_RETURN_IF_ERROR(d->GatherRows(arrived, s->expert_order, s->rows_RD));
    MOE_ASSIGN_OR_RETURN(TensorView out_RD, ctx.arena->Make(t, {R, D}));
    MOE_RETURN_IF_ERROR(Annotate(expert_->Forward(ctx, s->rows_RD, plan.offsets(), &s->expert, out_RD), spec_.name));
    MOE_RETURN_IF_ERROR(d->GatherRows(out_RD, s->arrival_order, arrived));
    MOE_RETURN_IF_ERROR(Exchange(plan, true, arrived, s->out_ND));
  }
  return d->Combine(s->out_ND, s->pos_TK, s->routing.weights_TK, y_TD, accumulate);
}

absl::Status MoeLayer::Backward(const ModuleContext& ctx, In dy_TD, const MoeSaved& s, In aux_E, double z_coef, Out dx_TD) {
  Device* d = ctx.device;
  const DispatchPlan& plan = *s.plan;
  const bool exchange = groups_.ep && groups_.ep->size() > 1;
  const DType t = dy_TD.dtype();
  const int64_t D = spec_.d_model, N = plan.num_sent(), R = plan.num_received();
  MOE_ASSIGN_OR_RETURN(TensorView dweights_TK, ctx.arena->Make(t, s.routing.weights_TK.shape()));
  MOE_ASSIGN_OR_RETURN(TensorView dout_ND, ctx.arena->Make(t, {N, D}));
  MOE_RETURN_IF_ERROR(d->CombineBackward(s.out_ND, s.pos_TK, s.routing.weights_TK, dy_TD, dout_ND, dweights_TK));
  MOE_ASSIGN_OR_RETURN(TensorView drows_RD, ctx.arena->Make(t, {R, D}));
  if (!exchange) {
    MOE_RETURN_IF_ERROR(Annotate(expert_->Backward(ctx, s.rows_RD, plan.offsets(), s.expert, dout_ND, drows_RD), spec_.name));
    MOE_RETURN_IF_ERROR(d->Combine(drows_RD, s.pos_TK, TensorView(), dx_TD, false));
  } else {
    MOE_ASSIGN_OR_RETURN(TensorView arrived, ctx.arena->Make(t, {R, D}));
    MOE_RETURN_IF_ERROR(Exchange(plan, false, dout_ND, arrived));
    MOE_ASSIGN_OR_RETURN(TensorView dout_RD, ctx.arena->Make(t, {R, D}));
    MOE_RETURN_IF_ERROR(d->GatherRows(arrived, s.expert_order, dout_RD));
    MOE_RETURN_IF_ERROR(Annotate(expert_->Backward(ctx, s.rows_RD, plan.offsets(), s.expert, dout_RD, drows_RD), spec_.name));
    MOE_RETURN_IF_ERROR(d->GatherRows(drows_RD, s.arrival_order, arrived));
    MOE_RETURN_IF_ERROR(Exchange(plan, true, arrived, dout_ND));
    MOE_RETURN_IF_ERROR(d->Combine(dout_ND, s.pos_TK, TensorView(), dx_TD, false));
  }
  return Annotate(gate_->Backward(ctx, s.x_TD, s.valid_T, s.routing, dweights_TK, aux_E, z_coef, dx_TD), spec_.name);
}

}  // namespace moe
