#include "core/model/model.h"

#include <algorithm>
#include <cmath>

#include "core/base/random.h"
#include "core/comm/agree.h"
#include "core/device/host_copy.h"
#include "core/model/model_chunk.h"

namespace moe {
namespace {

DType ModelDType(const config::Config& c) { return c.model().dtype() == "float64" ? DType::kF64 : DType::kF32; }

// An average does not exist without labels; 0 then.
double Mean(double sum, int64_t n) { return n > 0 ? sum / static_cast<double>(n) : 0.0; }

absl::Status AllReduceView(Communicator* group, const TensorView& v, const char* what) {
  return group == nullptr ? absl::OkStatus() : Annotate(AllReduce(group->For(what), v.data(), v.size(), v.dtype()), what);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> Model::Make(const config::Config& config, const ModelContext& context) {
  if (!context.device->Supports(ModelDType(config)))
    return InvalidArgument("model.dtype is ", config.model().dtype(), ", which device '", context.device->name(), "' does not compute; use float32 or device=reference");
  std::unique_ptr<Model> m(new Model(config, context));
  const Parallel& ranks = context.ranks;
  MOE_ASSIGN_OR_RETURN(const auto partition, context.modules->MakePartition(config.partition()));
  MOE_ASSIGN_OR_RETURN(const Placement placement, partition->Place(config.model().num_global_experts(), ranks.size(GroupKind::kEp)));
  MOE_ASSIGN_OR_RETURN(const std::vector<Chunk> places, PlaceLayers(config, ranks.stages()));
  MOE_ASSIGN_OR_RETURN(m->shape_.schedule.kind, ParseScheduleKind(config.pipeline().kind()));
  m->shape_.schedule.stages = ranks.stages();
  m->shape_.schedule.virtual_stages = VirtualStages(config, ranks.stages());
  m->shape_.needs_routing_sums = m->NeedsRoutingSums();
  m->shape_.tied_embeddings = config.model().tie_embeddings();
  m->store_ = std::make_unique<ParamStore>(context.device, ModelDType(config));
  const ModelChunk* first = nullptr;   // of the model, where it is on this stage
  for (const Chunk& place : places) {
    if (place.stage != ranks.stage()) continue;
    MOE_ASSIGN_OR_RETURN(auto chunk, ModelChunk::Make(config, place, placement, ranks, *context.modules));
    MOE_RETURN_IF_ERROR(chunk->DeclareParams(m->store_.get(), first));
    if (place.embedding) first = chunk.get();
    m->chunks_.push_back(std::move(chunk));
  }
  MOE_RETURN_IF_ERROR(m->store_->Materialize(config.seed()));
  MOE_ASSIGN_OR_RETURN(m->optimizer_, Optimizer::Make(config.optimizer(), config.steps(), m->store_.get()));
  m->rotary_ = std::make_unique<RotaryCache>(context.device, ModelDType(config), config);
  m->runner_ = std::make_unique<StageRunner>(context.device, ranks, &m->chunks_, static_cast<int64_t>(places.size()), m->rotary_.get());
  m->arena_ = std::make_unique<Arena>(context.device);
  for (Param& p : m->store_->params())
    for (const ParamPiece& q : p.pieces) m->pieces_.emplace_back(&p, &q);
  m->sums_ = RoutingSums(m->num_moe_layers(), config.model().num_global_experts());
  return m;
}

bool Model::NeedsRoutingSums() const { return num_moe_layers() > 0 && config_.gate().aux_loss() != "none" && config_.gate().aux_loss_coef() > 0; }

GroupKind Model::CopiesOf(ParamKind kind) {
  constexpr GroupKind copies[kNumParamKinds] = {GroupKind::kDpCp, GroupKind::kStage, GroupKind::kEdp};
  return copies[static_cast<int>(kind)];
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

absl::StatusOr<Model::Agreed> Model::Begin(const Batch& b, bool needs_labels) {
  // Three exchanges of a few numbers: who shares sequences has the same ones, and what all together hold. Only when something is
  // wrong does the message travel.
  const Parallel& ranks = context_.ranks;
  absl::Status mine = CheckBatch(b, needs_labels);
  const int64_t n = mine.ok() ? b.batch * b.seq : 0;
  bool failed = !mine.ok();
  int64_t labels = 0;
  for (int64_t i = 0; needs_labels && i < n; ++i) labels += b.labels[i] >= 0;
  if (Communicator* replica = ranks.group(GroupKind::kReplica)) {
    const auto bytes = [&](const int32_t* p) { return p ? std::string_view(reinterpret_cast<const char*>(p), n * sizeof(int32_t)) : std::string_view(); };
    const uint64_t hash = StreamKey(StreamKey(b.first_sample, bytes(b.ids)), needs_labels ? bytes(b.labels) : std::string_view());
    const int64_t told[4] = {mine.ok() ? 0 : 1, static_cast<int64_t>(hash), b.batch, b.seq};
    std::vector<int64_t> heard(4 * replica->size());
    MOE_RETURN_IF_ERROR(AllGather(replica->For("begin"), told, sizeof(told), heard.data()));
    for (int r = 0; r < replica->size(); ++r) failed = failed || heard[4 * r] != 0;   // that rank says why
    for (int r = 0; r < replica->size() && !failed && mine.ok(); ++r) {
      const int64_t* theirs = &heard[4 * r];
      if (!std::equal(told, told + 4, theirs))
        mine = InvalidArgument("batch: rank ", replica->members()[r], " has ", theirs[2], " sequences of ", theirs[3], " tokens and rank ", replica->members()[replica->rank()], " has ", b.batch, " of ", b.seq,
                               ", or their tokens differ; ranks of one data-parallel coordinate (mesh.tp, mesh.cp, mesh.pp) work on the same sequences: give them the same batch");
    }
  }
  Agreed a;
  int64_t most = b.batch;
  failed = failed || !mine.ok();
  a.labels = labels;
  a.tokens = n;
  if (Communicator* dp = ranks.group(GroupKind::kDp)) {
    const int64_t told[4] = {failed ? 1 : 0, labels, b.batch, n};
    std::vector<int64_t> heard(4 * dp->size());
    MOE_RETURN_IF_ERROR(AllGather(dp->For("begin"), told, sizeof(told), heard.data()));
    a.labels = a.tokens = most = 0;
    for (int r = 0; r < dp->size(); ++r) {
      failed = failed || heard[4 * r] != 0;
      a.labels += heard[4 * r + 1];
      most = std::max(most, heard[4 * r + 2]);
      a.tokens += heard[4 * r + 3];
    }
  }
  if (failed) {
    MOE_RETURN_IF_ERROR(Agree(context_.world, mine));
    return Internal("a rank refused its batch without saying why");
  }
  const int64_t P = ranks.stages();
  a.micro_batch = MicroBatchSize(config_, P, most);
  a.micro_batches = std::max<int64_t>(1, (most + a.micro_batch - 1) / a.micro_batch);
  // Interleaved stages take micro-batches in rounds: empty ones fill the last round.
  if (shape_.schedule.kind == ScheduleKind::kInterleaved) a.micro_batches = (a.micro_batches + P - 1) / P * P;
  return a;
}

StepWork Model::WorkOf(const Batch& b, const Agreed& agreed) const {
  StepWork w;
  w.sums = RoutingSums(num_moe_layers(), config_.model().num_global_experts());
  for (int64_t i = 0; i < agreed.micro_batches; ++i) {
    Batch m = b;
    const int64_t begin = std::min(i * agreed.micro_batch, b.batch);
    m.batch = std::min(agreed.micro_batch, b.batch - begin);
    m.first_sample = b.first_sample + begin;
    if (m.batch > 0) {
      m.ids = b.ids + begin * b.seq;
      m.labels = b.labels ? b.labels + begin * b.seq : nullptr;
    }
    w.micro.push_back(m);
  }
  return w;
}

absl::StatusOr<const StageProgram*> Model::StepProgramOf(int64_t micro_batches) {
  const auto at = step_programs_.find(micro_batches);
  if (at != step_programs_.end()) return &at->second;
  StepShape shape = shape_;
  shape.schedule.micro_batches = micro_batches;
  MOE_ASSIGN_OR_RETURN(std::vector<StageProgram> all, MakeStepProgram(shape));
  return &(step_programs_[micro_batches] = std::move(all[context_.ranks.stage()]));
}

absl::StatusOr<const StageProgram*> Model::ForwardProgramOf(int64_t micro_batches) {
  const auto at = forward_programs_.find(micro_batches);
  if (at != forward_programs_.end()) return &at->second;
  ScheduleShape shape = shape_.schedule;
  shape.micro_batches = micro_batches;
  MOE_ASSIGN_OR_RETURN(std::vector<StageProgram> all, MakeForwardProgram(shape));
  return &(forward_programs_[micro_batches] = std::move(all[context_.ranks.stage()]));
}

absl::Status Model::ReduceRouting(const Agreed& agreed, StepWork* work) {
  // Of a stage's layers, then of all stages, each of which has its own layers.
  MOE_RETURN_IF_ERROR(work->sums.Reduce(context_.ranks.group(GroupKind::kStage)));
  MOE_RETURN_IF_ERROR(work->sums.Reduce(context_.ranks.group(GroupKind::kPp)));
  work->sums.tokens = agreed.tokens;
  work->sums_reduced = true;
  sums_ = work->sums;
  losses_ = ComputeRoutingLosses(config_.gate(), config_.model().top_k(), sums_);
  if (losses_.aux_gradient.empty()) return absl::OkStatus();
  MOE_ASSIGN_OR_RETURN(work->aux_LE, DoublesToDevice(arena_.get(), store_->dtype(), {sums_.layers, sums_.experts}, losses_.aux_gradient.data()));
  return absl::OkStatus();
}

absl::Status Model::ReduceGradients(ParamKind kind) {
  return AllReduceView(context_.ranks.group(CopiesOf(kind)), store_->flat_grad(kind), absl::StrCat(Name(kind), " gradients").c_str());
}

absl::Status Model::ReduceTied() {
  Communicator* ends = context_.ranks.group(GroupKind::kEnds);
  if (ends == nullptr) return absl::OkStatus();
  for (const auto& [param, piece] : pieces_)
    if (piece->name == "embedding.weight") return AllReduceView(ends, param->grad, "tied gradients");
  return Internal("an end of the pipeline has no embedding");
}

absl::Status Model::SumOverBatch(double* values, int64_t n) {
  for (GroupKind kind : {GroupKind::kDpCp, GroupKind::kPp})
    if (Communicator* group = context_.ranks.group(kind)) MOE_RETURN_IF_ERROR(AllReduce(group->For("metrics"), values, n, DType::kF64));
  return absl::OkStatus();
}

absl::Status Model::Execute(const Op& op, const Agreed& agreed, StepWork* work) {
  switch (op.kind) {
    case OpKind::kBegin: return absl::OkStatus();   // done: it chose the program
    case OpKind::kReduceRouting: return ReduceRouting(agreed, work);
    case OpKind::kReduceDense: return ReduceGradients(ParamKind::kDense);
    case OpKind::kReduceReplicated: return ReduceGradients(ParamKind::kReplicated);
    case OpKind::kReduceExpert: return ReduceGradients(ParamKind::kExpert);
    case OpKind::kReduceTied: return ReduceTied();
    case OpKind::kReduceMetrics: return SumOverBatch(&work->nll, 1);
    case OpKind::kReduceNorm:
    case OpKind::kUpdate: return absl::OkStatus();   // OptimizerStep, when the caller asks for it
    default: return runner_->Run(op, work);
  }
}

absl::Status Model::ForwardBackward(const Batch& batch, StepStats* stats) {
  MOE_ASSIGN_OR_RETURN(const Agreed agreed, Begin(batch, true));
  MOE_ASSIGN_OR_RETURN(const StageProgram* program, StepProgramOf(agreed.micro_batches));
  StepWork work = WorkOf(batch, agreed);
  work.backward = work.training = true;
  work.noise_key = config_.seed() + 0x9e3779b97f4a7c15ull * static_cast<uint64_t>(step() + 1);
  // Without any label in the batch the head has no gradient, but the balancing losses still do.
  work.grad_scale = agreed.labels > 0 ? 1.0 / static_cast<double>(agreed.labels) : 0.0;
  work.z_coef = ZCoefficient(config_.gate(), agreed.tokens, num_moe_layers());
  MOE_RETURN_IF_ERROR(store_->ZeroGrad());
  MOE_RETURN_IF_ERROR(arena_->Reset());
  MOE_RETURN_IF_ERROR(runner_->Start());
  for (const Op& op : *program) MOE_RETURN_IF_ERROR(Execute(op, agreed, &work));
  MOE_RETURN_IF_ERROR(runner_->Finish());
  stats->step = step();
  stats->loss = Mean(work.nll, agreed.labels);
  stats->aux_loss = losses_.aux;
  stats->z_loss = losses_.z;
  stats->total_loss = stats->loss + config_.gate().aux_loss_coef() * losses_.aux + config_.gate().z_loss_coef() * losses_.z;
  stats->tokens = agreed.labels;
  stats->dropped_routes = sums_.dropped;
  return absl::OkStatus();
}

absl::Status Model::OptimizerStep(StepStats* stats) {
  stats->step = step();
  MOE_ASSIGN_OR_RETURN(double norm, optimizer_->GradNormPart({Owns(ParamKind::kDense), Owns(ParamKind::kReplicated), Owns(ParamKind::kExpert)}));
  for (GroupKind kind : {GroupKind::kStage, GroupKind::kPp})
    if (Communicator* group = context_.ranks.group(kind)) MOE_RETURN_IF_ERROR(Annotate(AllReduce(group->For("gradient norm"), &norm, 1, DType::kF64, optimizer_->infinity_norm() ? ReduceOp::kMax : ReduceOp::kSum), "gradient norm"));
  stats->grad_norm = optimizer_->infinity_norm() ? norm : std::sqrt(norm);
  MOE_ASSIGN_OR_RETURN(stats->lr, optimizer_->Step(stats->grad_norm));
  return absl::OkStatus();
}

absl::Status Model::RunForward(StepWork* work) {
  MOE_ASSIGN_OR_RETURN(const StageProgram* program, ForwardProgramOf(static_cast<int64_t>(work->micro.size())));
  MOE_RETURN_IF_ERROR(runner_->Start());
  for (const Op& op : *program) MOE_RETURN_IF_ERROR(runner_->Run(op, work));
  return runner_->Finish();
}

absl::Status Model::Evaluate(const Batch& batch, double* nll_sum, int64_t* num_labels) {
  MOE_ASSIGN_OR_RETURN(const Agreed agreed, Begin(batch, true));
  StepWork work = WorkOf(batch, agreed);
  MOE_RETURN_IF_ERROR(RunForward(&work));
  MOE_RETURN_IF_ERROR(SumOverBatch(&work.nll, 1));
  *nll_sum = work.nll;
  *num_labels = agreed.labels;
  return absl::OkStatus();
}

absl::Status Model::Logits(const Batch& batch, void* logits) {
  std::vector<char> host;
  MOE_RETURN_IF_ERROR(HostLogits(batch, false, &host));
  if (!host.empty()) std::copy(host.begin(), host.end(), static_cast<char*>(logits));
  return absl::OkStatus();
}

}  // namespace moe
