#include "core/plan/report/plan_report.h"

#include <algorithm>
#include <array>

#include "core/plan/step_shape.h"
#include "core/plan/validate.h"

namespace moe {
namespace {

// Ops of all stages: what a program of that length takes in memory and time is still fine.
constexpr double kMostOps = 2e7;

absl::Status CheckLength(const config::Config& c, const ScheduleShape& s) {
  const double ops = 6.0 * static_cast<double>(s.stages) * static_cast<double>(s.virtual_stages) * static_cast<double>(s.micro_batches);
  if (ops <= kMostOps) return absl::OkStatus();
  return InvalidArgument("train.micro_batch is ", c.train().micro_batch(), ", which makes ", s.micro_batches, " micro-batches on ", s.stages * s.virtual_stages,
                         " virtual stages: more operations than a plan draws up; raise train.micro_batch, lower train.global_batch or raise mesh.dp");
}

void AddTraffic(const StepCosts& costs, int64_t ranks_per_stage, PlanReport* r) {
  std::array<AxisTraffic, kGroupKinds.size()> axes;
  for (size_t k = 0; k < axes.size(); ++k) axes[k].group = kGroupKinds[k];
  const auto at = [](GroupKind k) { return static_cast<size_t>(std::find(kGroupKinds.begin(), kGroupKinds.end(), k) - kGroupKinds.begin()); };
  for (size_t s = 0; s < r->stages.size(); ++s) {
    StagePlan& stage = r->stages[s];
    std::array<double, kGroupKinds.size()> bytes{}, seconds{};
    for (const Op& op : r->programs[s]) {
      if (op.kind == OpKind::kExchange) {
        for (const Transfer& t : op.transfers)
          if (t.send) bytes[at(GroupKind::kPp)] += costs.TransferBytes(), seconds[at(GroupKind::kPp)] += costs.TransferSeconds();
        continue;
      }
      const OpCost& cost = costs.Of(static_cast<int64_t>(s), op);
      stage.compute += cost.compute;
      for (const Traffic& t : cost.traffic) {
        bytes[at(t.group)] += t.bytes;
        seconds[at(t.group)] += t.seconds;
        stage.communication += t.seconds;
      }
    }
    stage.idle = std::max(0.0, r->timeline.seconds - stage.compute - stage.communication);
    for (size_t k = 0; k < axes.size(); ++k) {
      if (bytes[k] > axes[k].rank_bytes) axes[k].rank_bytes = bytes[k], axes[k].rank_seconds = seconds[k];
      axes[k].total_bytes += bytes[k] * static_cast<double>(ranks_per_stage);
    }
  }
  for (const AxisTraffic& a : axes)
    if (a.total_bytes > 0) r->traffic.push_back(a);
}

}  // namespace

absl::StatusOr<PlanReport> MakePlanReport(const config::Config& c, const PlanOptions& options) {
  MOE_RETURN_IF_ERROR(ValidateLayout(c));
  PlanReport r;
  r.config = c;
  r.machine = options.machine;
  r.imbalance = options.imbalance;
  MOE_ASSIGN_OR_RETURN(const Mesh mesh, MeshFromConfig(c.ranks(), c.mesh(), c.model().num_global_experts()));
  r.mesh = std::make_shared<const Mesh>(mesh);
  const int64_t P = mesh.size(Axis::kPp), ranks_per_stage = mesh.world_size() / P, micro = NumMicroBatches(c, P, mesh.size(Axis::kDp));
  MOE_ASSIGN_OR_RETURN(const StepShape shape, StepShapeOf(c, P, micro));
  r.schedule = shape.schedule;
  MOE_RETURN_IF_ERROR(CheckLength(c, shape.schedule));
  r.model = CountModel(c);
  r.experts_per_rank = r.model.routed_experts > 0 ? ExpertsPerRank(c, mesh) : 0;
  for (GroupKind kind : kGroupKinds)
    if (GroupSummary g = Summarize(mesh, kind); g.groups > 0) r.groups.push_back(std::move(g));
  r.warnings = ConfigWarnings(c);

  const int64_t share = (c.train().global_batch() + mesh.size(Axis::kDp) - 1) / mesh.size(Axis::kDp);
  const int64_t head_rows = std::min(share, MicroBatchSize(c, P, share)) * c.train().seq_len() / mesh.size(Axis::kCp);
  MOE_ASSIGN_OR_RETURN(World world, MakeWorld(c, mesh, shape, head_rows));
  r.programs = world.programs;
  for (const Op& op : r.programs.front()) r.routed_first = r.routed_first || op.kind == OpKind::kRoute;
  const StepCosts costs(c, mesh, world.chunks, micro, options.machine, options.imbalance);
  r.micro = costs.shape();
  MOE_ASSIGN_OR_RETURN(r.timeline, Simulate(r.programs, [&](int64_t s, const Op& op) { return op.kind == OpKind::kExchange ? 0 : costs.Of(s, op).seconds(); }, costs.TransferSeconds(), options.machine, ranks_per_stage));

  double forward = 0, backward = 0, weight = 0;
  for (size_t i = 0; i < world.chunks.size(); ++i) {
    Op op;
    op.chunk = static_cast<int64_t>(i);
    const auto seconds = [&](OpKind kind) {
      op.kind = kind;
      return costs.Of(world.chunks[i].stage, op).seconds() / static_cast<double>(P);
    };
    forward += seconds(OpKind::kForward);
    backward += seconds(OpKind::kBackward);
    weight += seconds(OpKind::kBackwardWeight);
  }
  r.ideal_bubble = IdealBubble(shape.schedule, forward, backward, weight);

  r.stages.resize(P);
  for (const Chunk& chunk : world.chunks) r.stages[chunk.stage].chunks.push_back(chunk);
  for (int64_t s = 0; s < P; ++s) {
    StagePlan& stage = r.stages[s];
    stage.parameters = CountRank(c, mesh, stage.chunks);
    stage.memory = MemoryOf(c, r.programs[s], world.chunks, costs, stage.parameters);
  }
  AddTraffic(costs, ranks_per_stage, &r);

  r.seeded_mistake = options.seeded_mistake;
  if (!options.seeded_mistake.empty()) {
    MOE_ASSIGN_OR_RETURN(const Mistake mistake, ParseMistake(options.seeded_mistake));
    MOE_RETURN_IF_ERROR(SeedMistake(mistake, &world));
  }
  MOE_ASSIGN_OR_RETURN(r.verdict, CheckPrograms(world));
  return r;
}

}  // namespace moe
