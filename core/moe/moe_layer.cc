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

bool Several(const Communicator* group) { return group && group->size() > 1; }

// Rows of each local expert in the experts' input.
const std::vector<int64_t>& Offsets(const MoeSaved& s) { return s.etp ? s.etp->offsets() : s.plan->offsets(); }

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
  if (groups.etp) {
    e.etp_rank = groups.etp->rank();
    e.etp_size = groups.etp->size();
  }
  e.init_stddev_in = spec.init_stddev_in;
  e.init_stddev_out = spec.init_stddev_out;
  e.config = spec.expert;
  MOE_ASSIGN_OR_RETURN(layer->expert_, modules.MakeExpert(e));
  return layer;
}

void MoeLayer::Announce() const {
  for (Communicator* c : {groups_.ep, groups_.etp, groups_.batch})
    if (c != nullptr) c->At(spec_.name);
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
  Announce();
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
  if (Several(groups_.ep)) {
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
  return Annotate(RunAllToAllV(groups_.ep->For(reverse ? "combine" : "dispatch"), a), absl::StrCat(spec_.name, reverse ? " (combine)" : " (dispatch)"));
}

absl::StatusOr<TensorView> MoeLayer::Dispatch(const ModuleContext& ctx, const MoeSaved& s, In rows_ND) {
  if (!Several(groups_.ep)) return rows_ND;
  const std::vector<int64_t> shape = {s.plan->num_received(), spec_.d_model};
  MOE_ASSIGN_OR_RETURN(const TensorView rows_RD, ctx.arena->Make(rows_ND.dtype(), shape));
  const Arena::Mark mark = ctx.arena->Position();
  MOE_ASSIGN_OR_RETURN(const TensorView arrived, ctx.arena->Make(rows_ND.dtype(), shape));
  MOE_RETURN_IF_ERROR(Exchange(*s.plan, false, rows_ND, arrived));
  MOE_RETURN_IF_ERROR(ctx.device->GatherRows(arrived, s.expert_order, rows_RD));
  ctx.arena->Rewind(mark);
  return rows_RD;
}

absl::Status MoeLayer::Return(const ModuleContext& ctx, const MoeSaved& s, In rows, Out rows_ND) {
  const Arena::Mark mark = ctx.arena->Position();
  const std::vector<int64_t> shape = {s.plan->num_received(), spec_.d_model};
  TensorView rows_RD = rows;
  if (s.etp) {
    rows_RD = rows_ND;
    if (Several(groups_.ep)) {
      MOE_ASSIGN_OR_RETURN(rows_RD, ctx.arena->Make(rows.dtype(), shape));
    }
    MOE_RETURN_IF_ERROR(s.etp->Reduce(ctx.device, ctx.arena, rows, rows_RD));
  }
  if (Several(groups_.ep)) {
    MOE_ASSIGN_OR_RETURN(const TensorView leaving, ctx.arena->Make(rows.dtype(), shape));
    MOE_RETURN_IF_ERROR(ctx.device->GatherRows(rows_RD, s.arrival_order, leaving));
    MOE_RETURN_IF_ERROR(Exchange(*s.plan, true, leaving, rows_ND));
  }
  ctx.arena->Rewind(mark);
  return absl::OkStatus();
}

absl::Status MoeLayer::DispatchInput(const ModuleContext& ctx, MoeSaved* s, RoutingSums* sums, int64_t layer_index) {
  MOE_RETURN_IF_ERROR(Route(ctx, s, sums, layer_index));
  const std::vector<int64_t> shape = {s->plan->num_sent(), spec_.d_model};
  MOE_ASSIGN_OR_RETURN(s->out_ND, ctx.arena->Make(s->x_TD.dtype(), shape));
  TensorView sent = s->out_ND;   // outputs come back to where their rows have left
  if (!Several(groups_.ep)) {
    MOE_ASSIGN_OR_RETURN(sent, ctx.arena->Make(s->x_TD.dtype(), shape));
  }
  MOE_RETURN_IF_ERROR(ctx.device->GatherRows(s->x_TD, s->token_N, sent));
  MOE_ASSIGN_OR_RETURN(s->rows_RD, Dispatch(ctx, *s, sent));
  return absl::OkStatus();
}

absl::Status MoeLayer::GatherInput(const ModuleContext& ctx, MoeSaved* s, RoutingSums* sums, int64_t layer_index) {
  const absl::Status mine = DispatchInput(ctx, s, sums, layer_index);
  if (!Several(groups_.etp)) return mine;
  if (!mine.ok() && groups_.batch && IsAgreed(mine, groups_.batch->size())) return mine;   // from Route: the whole stage has it
  // Other expert-parallel groups meet this one here: what failed in one of them is told to all.
  const int64_t experts = static_cast<int64_t>(placement_.experts_of(groups_.ep ? groups_.ep->rank() : 0).size());
  const absl::Span<const int64_t> offsets = mine.ok() ? absl::MakeConstSpan(s->plan->offsets()) : absl::Span<const int64_t>();
  MOE_ASSIGN_OR_RETURN(EtpExchange etp, EtpExchange::Make(ctx.arena, groups_.etp, experts, offsets, mine, spec_.name));
  s->etp = std::make_shared<EtpExchange>(std::move(etp));
  MOE_ASSIGN_OR_RETURN(const TensorView rows_UD, ctx.arena->Make(s->x_TD.dtype(), {s->etp->num_rows(), spec_.d_model}));
  MOE_RETURN_IF_ERROR(s->etp->Gather(ctx.device, ctx.arena, s->rows_RD, rows_UD));
  s->rows_RD = rows_UD;
  return absl::OkStatus();
}

absl::Status MoeLayer::Forward(const ModuleContext& ctx, In x_TD, In valid_T, bool accumulate, MoeSaved* s, Out y_TD, RoutingSums* sums, int64_t layer_index) {
  Announce();
  s->x_TD = x_TD;
  s->valid_T = valid_T;
  s->etp = nullptr;
  MOE_RETURN_IF_ERROR(GatherInput(ctx, s, sums, layer_index));
  TensorView out = s->out_ND;
  const bool travels = s->etp || Several(groups_.ep);
  if (travels) {
    MOE_ASSIGN_OR_RETURN(out, ctx.arena->Make(x_TD.dtype(), s->rows_RD.shape()));
  }
  MOE_RETURN_IF_ERROR(Annotate(expert_->Forward(ctx, s->rows_RD, Offsets(*s), &s->expert, out), spec_.name));
  if (travels) MOE_RETURN_IF_ERROR(Return(ctx, *s, out, s->out_ND));
  return ctx.device->Combine(s->out_ND, s->pos_TK, s->routing.weights_TK, y_TD, accumulate);
}

absl::Status MoeLayer::Backward(const ModuleContext& ctx, In dy_TD, const MoeSaved& s, In aux_E, double z_coef, Out dx_TD) {
  Announce();
  Device* d = ctx.device;
  const DType t = dy_TD.dtype();
  MOE_ASSIGN_OR_RETURN(const TensorView dweights_TK, ctx.arena->Make(t, s.routing.weights_TK.shape()));
  MOE_ASSIGN_OR_RETURN(const TensorView dout_ND, ctx.arena->Make(t, s.out_ND.shape()));
  MOE_RETURN_IF_ERROR(d->CombineBackward(s.out_ND, s.pos_TK, s.routing.weights_TK, dy_TD, dout_ND, dweights_TK));
  // Gradients go the way of the rows.
  MOE_ASSIGN_OR_RETURN(TensorView dout, Dispatch(ctx, s, dout_ND));
  if (s.etp) {
    MOE_ASSIGN_OR_RETURN(const TensorView dout_UD, ctx.arena->Make(t, s.rows_RD.shape()));
    MOE_RETURN_IF_ERROR(s.etp->Gather(d, ctx.arena, dout, dout_UD));
    dout = dout_UD;
  }
  MOE_ASSIGN_OR_RETURN(TensorView drows, ctx.arena->Make(t, s.rows_RD.shape()));
  MOE_RETURN_IF_ERROR(Annotate(expert_->Backward(ctx, s.rows_RD, Offsets(s), s.expert, dout, drows), spec_.name));
  if (s.etp || Several(groups_.ep)) {
    // Experts had dout_ND's copy at their ranks: work that is left for later does not read it.
    MOE_RETURN_IF_ERROR(Return(ctx, s, drows, dout_ND));
    drows = dout_ND;
  }
  MOE_RETURN_IF_ERROR(d->Combine(drows, s.pos_TK, TensorView(), dx_TD, false));
  return Annotate(gate_->Backward(ctx, s.x_TD, s.valid_T, s.routing, dweights_TK, aux_E, z_coef, dx_TD), spec_.name);
}

}  // namespace moe
