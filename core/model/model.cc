#include "core/model/model.h"

#include <algorithm>

#include "core/comm/agree.h"
#include "core/device/host_copy.h"

namespace moe {
namespace {

DType ModelDType(const config::Config& c) { return c.model().dtype() == "float64" ? DType::kF64 : DType::kF32; }

// An average does not exist without labels; 0 then.
double Mean(double sum, int64_t n) { return n > 0 ? sum / static_cast<double>(n) : 0.0; }

int64_t CountLabels(const Batch& b) {
  return std::count_if(b.labels, b.labels + b.batch * b.seq, [](int32_t l) { return l >= 0; });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> Model::Make(const config::Config& config, const ModelContext& context) {
  if (!context.device->Supports(ModelDType(config)))
    return InvalidArgument("model.dtype is ", config.model().dtype(), ", which device '", context.device->name(), "' does not compute; use float32 or device=reference");
  std::unique_ptr<Model> m(new Model(config, context));
  MOE_ASSIGN_OR_RETURN(auto partition, context.modules->MakePartition(config.partition()));
  MOE_ASSIGN_OR_RETURN(Placement placement, partition->Place(config.model().num_global_experts(), context.ep ? context.ep->size() : 1));
  MoeGroups groups;
  groups.ep = context.ep;
  groups.batch = context.batch;
  MOE_ASSIGN_OR_RETURN(m->transformer_, Transformer::Make(config, placement, groups, *context.modules));
  m->store_ = std::make_unique<ParamStore>(context.device, ModelDType(config));
  MOE_RETURN_IF_ERROR(m->transformer_->DeclareParams(m->store_.get()));
  MOE_RETURN_IF_ERROR(m->store_->Materialize(config.seed()));
  MOE_ASSIGN_OR_RETURN(m->optimizer_, Optimizer::Make(config.optimizer(), config.steps(), m->store_.get()));
  m->arena_ = std::make_unique<Arena>(context.device);
  for (Param& p : m->store_->params())
    for (const ParamPiece& q : p.pieces) m->pieces_.emplace_back(&p, &q);
  m->sums_ = RoutingSums(m->num_moe_layers(), config.model().num_global_experts());
  return m;
}

absl::Status Model::CheckBatch(const Batch& b, bool needs_labels) const {
  if (b.batch < 0 || b.seq < 1) return InvalidArgument("batch: ", b.batch, " sequences of ", b.seq, " tokens; batch must be >= 0 and seq >= 1");
  if (b.batch > 0 && b.ids == nullptr) return InvalidArgument("batch: ids is null");
  if (b.batch > 0 && needs_labels && b.labels == nullptr) return InvalidArgument("batch: labels is null");
  const int64_t vocab = config_.model().vocab_size();
  for (int64_t i = 0; i < b.batch * b.seq; ++i) {
    if (b.ids[i] < 0 || b.ids[i] >= vocab) return InvalidArgument("batch: ids[", i / b.seq, ",", i % b.seq, "] is ", b.ids[i], ", outside model.vocab_size ", vocab);
    if (needs_labels && b.labels[i] >= vocab) return InvalidArgument("batch: labels[", i / b.seq, ",", i % b.seq, "] is ", b.labels[i], ", outside model.vocab_size ", vocab);
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Model::NumMicroBatches(const Batch& b) const {
  const int64_t size = config_.train().micro_batch();
  int64_t n = size > 0 ? (b.batch + size - 1) / size : 1;
  if (context_.batch && context_.batch->size() > 1 && size > 0)
    MOE_RETURN_IF_ERROR(AllReduce(context_.batch, &n, 1, DType::kI64, ReduceOp::kMax));
  return std::max<int64_t>(n, 1);
}

Batch Model::MicroBatch(const Batch& b, int64_t index) const {
  const int64_t size = config_.train().micro_batch() > 0 ? config_.train().micro_batch() : b.batch;
  Batch m = b;
  const int64_t begin = std::min(index * size, b.batch);
  m.batch = std::min(size, b.batch - begin);
  m.first_sample = b.first_sample + begin;
  if (m.batch > 0) {
    m.ids = b.ids + begin * b.seq;
    m.labels = b.labels ? b.labels + begin * b.seq : nullptr;
  }
  return m;
}

absl::Status Model::ForwardBackward(const Batch& batch, StepStats* stats) {
  Communicator* ranks = context_.batch;
  // A bad batch on one rank must not strand the others.
  MOE_RETURN_IF_ERROR(Agree(ranks, CheckBatch(batch, true)));
  int64_t labels = CountLabels(batch);
  if (ranks && ranks->size() > 1) MOE_RETURN_IF_ERROR(AllReduce(ranks, &labels, 1, DType::kI64));
  MOE_ASSIGN_OR_RETURN(const int64_t micro_batches, NumMicroBatches(batch));

  ModuleContext ctx;
  ctx.device = context_.device;
  ctx.arena = arena_.get();
  ctx.training = true;
  ctx.noise_key = config_.seed() + 0x9e3779b97f4a7c15ull * static_cast<uint64_t>(step() + 1);
  const int64_t L = num_moe_layers(), E = config_.model().num_global_experts();
  const double grad_scale = labels > 0 ? 1.0 / static_cast<double>(labels) : 0.0;
  const bool needs_counts = L > 0 && config_.gate().aux_loss() != "none" && config_.gate().aux_loss_coef() > 0;

  MOE_RETURN_IF_ERROR(store_->ZeroGrad());
  // The balancing loss of the whole batch needs the counts of the whole batch before the first backward. One micro-batch has
  // them after its forward; several are routed once without backward first.
  RoutingSums sums(L, E);
  RoutingLosses losses;
  const auto forward = [&](const Batch& b, bool keep, Transformer::Pass* pass, RoutingSums* into) {
    ctx.first_token = b.first_sample * b.seq;
    return transformer_->Forward(ctx, b.ids, b.batch, b.seq, keep, pass, into);
  };
  if (micro_batches > 1 && (needs_counts || config_.gate().z_loss_coef() > 0)) {
    for (int64_t i = 0; i < micro_batches; ++i) {
      MOE_RETURN_IF_ERROR(arena_->Reset());
      Transformer::Pass pass;
      MOE_RETURN_IF_ERROR(forward(MicroBatch(batch, i), false, &pass, &sums));
    }
    MOE_RETURN_IF_ERROR(sums.Reduce(ranks));
    losses = ComputeRoutingLosses(config_.gate(), config_.model().top_k(), sums);
  }
  const bool known = sums.tokens > 0;
  RoutingSums seen(L, E);
  double nll = 0;
  for (int64_t i = 0; i < micro_batches; ++i) {
    const Batch b = MicroBatch(batch, i);
    MOE_RETURN_IF_ERROR(arena_->Reset());
    Transformer::Pass pass;
    MOE_RETURN_IF_ERROR(forward(b, true, &pass, &seen));
    if (!known && i + 1 == micro_batches) {
      sums = seen;
      MOE_RETURN_IF_ERROR(sums.Reduce(ranks));
      losses = ComputeRoutingLosses(config_.gate(), config_.model().top_k(), sums);
    }
    MOE_ASSIGN_OR_RETURN(TensorView dfinal, arena_->Make(store_->dtype(), pass.final_TD.shape()));
    // Without any label in the batch the head has no gradient, but the balancing losses still do.
    if (grad_scale == 0) MOE_RETURN_IF_ERROR(context_.device->Fill(dfinal, 0));
    MOE_ASSIGN_OR_RETURN(double part, transformer_->Loss(ctx, pass.final_TD, b.labels, grad_scale, dfinal));
    nll += part;
    TensorView aux;
    if (!losses.aux_gradient.empty()) {
      MOE_ASSIGN_OR_RETURN(aux, DoublesToDevice(arena_.get(), store_->dtype(), {L, E}, losses.aux_gradient.data()));
    }
    MOE_RETURN_IF_ERROR(transformer_->Backward(ctx, pass, aux, losses.z_coef, dfinal));
  }
  sums_ = sums;

  if (ranks && ranks->size() > 1) {
    const TensorView g = store_->flat_grad(ParamKind::kDense);
    MOE_RETURN_IF_ERROR(Annotate(AllReduce(ranks, g.data(), g.size(), g.dtype()), "sum of dense gradients"));
    MOE_RETURN_IF_ERROR(AllReduce(ranks, &nll, 1, DType::kF64));
  }
  if (context_.edp && context_.edp->size() > 1) {
    const TensorView g = store_->flat_grad(ParamKind::kExpert);
    MOE_RETURN_IF_ERROR(Annotate(AllReduce(context_.edp, g.data(), g.size(), g.dtype()), "sum of expert gradients"));
  }
  stats->step = step();
  stats->loss = Mean(nll, labels);
  stats->aux_loss = losses.aux;
  stats->z_loss = losses.z;
  stats->total_loss = stats->loss + config_.gate().aux_loss_coef() * losses.aux + config_.gate().z_loss_coef() * losses.z;
  stats->tokens = labels;
  stats->dropped_routes = sums.dropped;
  return absl::OkStatus();
}

absl::Status Model::OptimizerStep(StepStats* stats) {
  stats->step = step();
  MOE_ASSIGN_OR_RETURN(stats->grad_norm, optimizer_->GradNorm(context_.ep));
  MOE_ASSIGN_OR_RETURN(stats->lr, optimizer_->Step(stats->grad_norm));
  return absl::OkStatus();
}

absl::Status Model::Evaluate(const Batch& batch, double* nll_sum, int64_t* num_labels) {
  MOE_RETURN_IF_ERROR(Agree(context_.batch, CheckBatch(batch, true)));
  ModuleContext ctx;
  ctx.device = context_.device;
  ctx.arena = arena_.get();
  MOE_ASSIGN_OR_RETURN(const int64_t micro_batches, NumMicroBatches(batch));
  double sums[2] = {0, 0};
  for (int64_t i = 0; i < micro_batches; ++i) {
    const Batch m = MicroBatch(batch, i);
    MOE_RETURN_IF_ERROR(arena_->Reset());
    Transformer::Pass pass;
    RoutingSums ignored(num_moe_layers(), config_.model().num_global_experts());
    MOE_RETURN_IF_ERROR(transformer_->Forward(ctx, m.ids, m.batch, m.seq, false, &pass, &ignored));
    MOE_ASSIGN_OR_RETURN(double part, transformer_->Loss(ctx, pass.final_TD, m.labels, 0, TensorView()));
    sums[0] += part;
    sums[1] += static_cast<double>(CountLabels(m));
  }
  if (context_.batch && context_.batch->size() > 1) MOE_RETURN_IF_ERROR(AllReduce(context_.batch, sums, 2, DType::kF64));
  *nll_sum = sums[0];
  *num_labels = static_cast<int64_t>(sums[1]);
  return absl::OkStatus();
}

absl::Status Model::Logits(const Batch& batch, void* logits) {
  MOE_RETURN_IF_ERROR(Agree(context_.batch, CheckBatch(batch, false)));
  ModuleContext ctx;
  ctx.device = context_.device;
  ctx.arena = arena_.get();
  MOE_RETURN_IF_ERROR(arena_->Reset());
  Transformer::Pass pass;
  RoutingSums ignored(num_moe_layers(), config_.model().num_global_experts());
  MOE_RETURN_IF_ERROR(transformer_->Forward(ctx, batch.ids, batch.batch, batch.seq, false, &pass, &ignored));
  MOE_ASSIGN_OR_RETURN(TensorView out, arena_->Make(store_->dtype(), {batch.batch * batch.seq, config_.model().vocab_size()}));
  MOE_RETURN_IF_ERROR(transformer_->Logits(ctx, pass.final_TD, out));
  return context_.device->CopyToHost(logits, out);
}

}  // namespace moe
