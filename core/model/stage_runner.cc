#include "core/model/stage_runner.h"

namespace moe {

absl::Status StageRunner::Start() {
  live_.clear();
  retired_.clear();
  return absl::OkStatus();
}

absl::Status StageRunner::Finish() {
  MOE_RETURN_IF_ERROR(Reap(0));
  if (live_.empty()) return absl::OkStatus();
  const Live& left = *live_.begin()->second;
  return Internal("the program left micro-batch ", left.micro, " of virtual stage ", left.chunk, " behind");
}

absl::Status StageRunner::Run(const Op& op, StepWork* work) {
  const absl::Status done = Execute(op, work);
  ranks_.At("");   // what follows is of no layer
  return done;
}

absl::Status StageRunner::Execute(const Op& op, StepWork* work) {
  switch (op.kind) {
    case OpKind::kRoute:
    case OpKind::kForward: return Forward(op, work);
    case OpKind::kBackward:
    case OpKind::kBackwardInput: return Backward(op, work);
    case OpKind::kBackwardWeight: return BackwardWeight(op, work);
    case OpKind::kExchange: return Exchange(op, work);
    default: return Internal("the stage runner does not execute '", ToString(op), "'");
  }
}

absl::StatusOr<std::unique_ptr<Arena>> StageRunner::TakeArena(int64_t chunk) {
  // What is still on its way to another stage keeps its memory; a few of them may.
  MOE_RETURN_IF_ERROR(Reap(2));
  auto& free = arenas_[chunk];
  if (free.empty()) return std::make_unique<Arena>(device_);
  std::unique_ptr<Arena> arena = std::move(free.back());
  free.pop_back();
  MOE_RETURN_IF_ERROR(arena->Reset());
  return arena;
}

absl::StatusOr<StageRunner::Live*> StageRunner::Get(int64_t chunk, int64_t micro, StepWork* work) {
  std::unique_ptr<Live>& live = live_[{chunk, micro}];
  if (!live) {
    MOE_ASSIGN_OR_RETURN(std::unique_ptr<Arena> arena, TakeArena(chunk));
    live = std::make_unique<Live>();
    live->chunk = chunk;
    live->micro = micro;
    live->arena = std::move(arena);
    live->pass.layout = TokenLayout(work->micro[micro], ranks_);
  }
  return live.get();
}

absl::Status StageRunner::Retire(Live* live) {
  if (!live->computed || live->owes_send) return absl::OkStatus();
  const auto at = live_.find({live->chunk, live->micro});
  retired_.push_back(std::move(at->second));
  live_.erase(at);
  // Where nothing is on its way, the memory is free at once.
  while (!retired_.empty() && retired_.front()->sends.empty()) MOE_RETURN_IF_ERROR(Reap(retired_.size() - 1));
  return absl::OkStatus();
}

absl::Status StageRunner::Reap(size_t keep) {
  while (retired_.size() > keep) {
    Live* oldest = retired_.front().get();
    for (const WorkPtr& w : oldest->sends) MOE_RETURN_IF_ERROR(w->Wait());
    arenas_[oldest->chunk].push_back(std::move(oldest->arena));
    retired_.pop_front();
  }
  return absl::OkStatus();
}

ModuleContext StageRunner::Context(Live* live, const StepWork& work) const {
  const TokenLayout& l = live->pass.layout;
  ModuleContext ctx;
  ctx.device = device_;
  ctx.arena = live->arena.get();
  ctx.training = work.training;
  ctx.noise_key = work.noise_key;
  ctx.first_token = l.first_token();
  if (l.runs().size() > 1) ctx.token_runs = &l.runs();
  return ctx;
}

absl::StatusOr<TensorView> StageRunner::Hidden(const Live& live) const {
  const StageChunk& chunk = *ChunkAt(live.chunk);
  return live.arena->Make(chunk.dtype(), {live.pass.layout.share_rows(), chunk.d_model()});
}

absl::Status StageRunner::Forward(const Op& op, StepWork* work) {
  MOE_ASSIGN_OR_RETURN(Live * live, Get(op.chunk, op.micro, work));
  if (live->receive) MOE_RETURN_IF_ERROR(live->receive->Wait());
  live->receive.reset();
  StageChunk* chunk = ChunkAt(op.chunk);
  const ModuleContext ctx = Context(live, *work);
  const bool route = op.kind == OpKind::kRoute, keep = work->backward && !route;
  RoutingSums ignored;
  if (work->sums_reduced) ignored = RoutingSums(work->sums.layers, work->sums.experts);
  MOE_RETURN_IF_ERROR(chunk->Forward(ctx, rotary_, keep, &live->pass, work->sums_reduced ? &ignored : &work->sums));
  if (chunk->place().head && !route) {
    if (work->head) {
      MOE_RETURN_IF_ERROR(work->head(ctx, chunk, live->pass, op.micro));
    } else {
      MOE_ASSIGN_OR_RETURN(const double nll, chunk->Loss(ctx, keep, work->grad_scale, &live->pass));
      work->nll += nll;
    }
  }
  const bool last = op.chunk == num_chunks_ - 1, alone = ranks_.stages() == 1;
  if (!last && alone) {
    MOE_ASSIGN_OR_RETURN(Live * next, Get(op.chunk + 1, op.micro, work));
    MOE_ASSIGN_OR_RETURN(next->pass.x_TD, Hidden(*next));
    MOE_RETURN_IF_ERROR(device_->Copy(live->pass.y_TD, next->pass.x_TD));
  }
  if (keep) return absl::OkStatus();
  live->computed = true;
  live->owes_send = !last && !alone;
  return Retire(live);
}

absl::Status StageRunner::Backward(const Op& op, StepWork* work) {
  MOE_ASSIGN_OR_RETURN(Live * live, Get(op.chunk, op.micro, work));
  if (live->receive) MOE_RETURN_IF_ERROR(live->receive->Wait());
  live->receive.reset();
  const bool split = op.kind == OpKind::kBackwardInput, alone = ranks_.stages() == 1;
  MOE_RETURN_IF_ERROR(ChunkAt(op.chunk)->Backward(Context(live, *work), split, work->aux_LE, work->z_coef, &live->pass));
  if (op.chunk > 0 && alone) {
    MOE_ASSIGN_OR_RETURN(Live * before, Get(op.chunk - 1, op.micro, work));
    MOE_ASSIGN_OR_RETURN(before->pass.dy_TD, Hidden(*before));
    MOE_RETURN_IF_ERROR(device_->Copy(live->pass.dx_TD, before->pass.dy_TD));
  }
  live->owes_send = op.chunk > 0 && !alone;
  live->computed = !split;
  return Retire(live);
}

absl::Status StageRunner::BackwardWeight(const Op& op, StepWork* work) {
  MOE_ASSIGN_OR_RETURN(Live * live, Get(op.chunk, op.micro, work));
  for (const auto& f : live->pass.weight_grads) MOE_RETURN_IF_ERROR(f());
  live->pass.weight_grads.clear();
  live->computed = true;
  return Retire(live);
}

absl::Status StageRunner::Exchange(const Op& op, StepWork* work) {
  Communicator* pp = ranks_.group(GroupKind::kPp);
  if (pp == nullptr) return Internal("'", ToString(op), "' without a pipeline");
  const int64_t M = static_cast<int64_t>(work->micro.size());
  std::vector<Live*> sent;
  for (const Transfer& t : op.transfers) {
    // An activation comes out of the lower virtual stage, a gradient out of the upper one.
    const int64_t from = t.boundary + (t.gradient ? 1 : 0), to = t.boundary + (t.gradient ? 0 : 1);
    MOE_ASSIGN_OR_RETURN(Live * live, Get(t.send ? from : to, t.micro, work));
    const uint32_t tag = Tag(t, M, num_chunks_);
    const int peer = static_cast<int>(t.peer);
    if (t.send) {
      const TensorView& v = t.gradient ? live->pass.dx_TD : live->pass.y_TD;
      absl::StatusOr<WorkPtr> w = pp->For(ToString(t))->PostSend(v.data(), v.bytes(), peer, tag);
      MOE_RETURN_IF_ERROR(Annotate(w.status(), ToString(t)));
      live->sends.push_back(*std::move(w));
      sent.push_back(live);
    } else {
      TensorView& v = t.gradient ? live->pass.dy_TD : live->pass.x_TD;
      MOE_ASSIGN_OR_RETURN(v, Hidden(*live));
      absl::StatusOr<WorkPtr> w = pp->For(ToString(t))->PostRecv(v.data(), v.bytes(), peer, tag);
      MOE_RETURN_IF_ERROR(Annotate(w.status(), ToString(t)));
      live->receive = *std::move(w);
    }
  }
  for (Live* live : sent) {
    live->owes_send = false;
    MOE_RETURN_IF_ERROR(Retire(live));
  }
  return absl::OkStatus();
}

}  // namespace moe
