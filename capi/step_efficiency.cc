#include "capi/step_efficiency.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "capi/copies.h"
#include "capi/open_engine.h"
#include "core/model/model.h"
#include "core/plan/report/plan_report.h"
#include "core/plan/validate.h"

namespace moe::capi {
namespace {

constexpr double kMostParameters = 64e6;
constexpr int64_t kMostTokens = 4096;   // of a rank and step
constexpr int kSteps = 6;               // the first is not counted

// `c` with as few layers as its stages allow, at least two, and a batch that is no larger than it must be.
config::Config ShortModel(const config::Config& c, const Mesh& mesh, int64_t ranks, int64_t threads) {
  config::Config s = c;
  const int64_t dp = mesh.size(Axis::kDp), pp = mesh.size(Axis::kPp), seq = c.train().seq_len(), share = (c.train().global_batch() + dp - 1) / dp;
  const int64_t micro = std::min(share, MicroBatchSize(c, pp, share)), split = mesh.size(Axis::kTp) * mesh.size(Axis::kCp);
  s.set_ranks(static_cast<int32_t>(ranks));
  s.set_threads(static_cast<int32_t>(threads));
  s.set_device("cpu");
  s.mutable_transport()->set_kind("inproc");
  s.mutable_pipeline()->clear_stage_layers();
  int64_t stages = 1;
  if (c.ranks() == ranks) {
    stages = pp * VirtualStages(c, pp);
    const int64_t part = micro * pp, parts = std::max<int64_t>(1, share / part), most = std::max<int64_t>(1, kMostTokens * split / (part * seq));   // of a data-parallel rank; whole rounds of micro-batches
    if (parts > most) s.mutable_train()->set_global_batch(static_cast<int32_t>(most * part * dp));
    s.mutable_train()->set_micro_batch(static_cast<int32_t>(micro));
  } else {
    s.clear_mesh();
    s.mutable_mesh()->set_ep(1);
    s.clear_pipeline();
    const int64_t tokens = std::min(micro * seq / split, kMostTokens);
    s.mutable_train()->set_global_batch(static_cast<int32_t>(std::max<int64_t>(1, tokens / seq) * ranks));
    s.mutable_train()->set_micro_batch(0);
  }
  s.mutable_model()->set_num_layers(std::max(stages, std::min<int64_t>(2, c.model().num_layers())));
  s.mutable_model()->set_num_dense_layers(std::min(c.model().num_dense_layers(), s.model().num_layers() - 1));
  return s;
}

// Mean over layers of the routes to the busiest of `ep` blocks of experts over the mean of the blocks.
double Imbalance(const Model& model, int64_t ep) {
  const std::vector<int64_t>& count = model.expert_count();
  const int64_t experts = model.config().model().num_global_experts(), layers = model.num_moe_layers();
  if (ep <= 1 || layers == 0 || experts % ep != 0) return 1;
  double sum = 0;
  for (int64_t l = 0; l < layers; ++l) {
    std::vector<double> block(ep);
    double all = 0;
    for (int64_t e = 0; e < experts; ++e) {
      block[e * ep / experts] += static_cast<double>(count[l * experts + e]);
      all += static_cast<double>(count[l * experts + e]);
    }
    sum += *std::max_element(block.begin(), block.end()) * static_cast<double>(ep) / std::max(all, 1.0);
  }
  return std::max(1.0, sum / static_cast<double>(layers));
}

struct Trial { double seconds = 0, imbalance = 1; };

absl::StatusOr<Trial> Train(const config::Config& c, EngineState* engine) {
  MOE_ASSIGN_OR_RETURN(const auto model, Model::Make(c, ContextOf(engine)));
  const int64_t n = c.train().global_batch(), mine = ShareSize(n, model->dp_size(), model->dp_rank());
  std::vector<int32_t> ids(mine * c.train().seq_len() + 1);
  uint64_t state = 17 + static_cast<uint64_t>(model->dp_rank());
  for (int32_t& id : ids) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    id = static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(c.model().vocab_size()));
  }
  const Batch batch{ids.data(), ids.data() + 1, mine, c.train().seq_len(), ShareBegin(n, model->dp_size(), model->dp_rank())};
  std::vector<double> seconds;
  for (int i = 0; i < kSteps; ++i) {
    StepStats stats;
    const auto begin = std::chrono::steady_clock::now();
    MOE_RETURN_IF_ERROR(model->ForwardBackward(batch, &stats));
    MOE_RETURN_IF_ERROR(model->OptimizerStep(&stats));
    if (i > 0) seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(seconds.begin(), seconds.end());
  return Trial{seconds[seconds.size() / 2], Imbalance(*model, engine->mesh->size(Axis::kEp))};
}

absl::StatusOr<Trial> RunRank(const config::Config& c, int64_t ranks, int64_t rank, moe_inproc* world) {
  moe_engine_options o{};
  o.world_size = ranks;
  o.rank = rank;
  o.inproc = ranks > 1 ? world : nullptr;
  MOE_ASSIGN_OR_RETURN(const auto engine, OpenEngine(c, o));
  absl::StatusOr<Trial> trial = Train(c, engine.get());
  if (!trial.ok()) {
    engine->transport->Abort(trial.status());   // nobody shall wait for this rank
    return trial;
  }
  MOE_RETURN_IF_ERROR(engine->transport->Shutdown());
  return trial;
}

}  // namespace

absl::StatusOr<std::optional<double>> StepEfficiency(const config::Config& c, const Machine& machine, int64_t ranks) {
  MOE_ASSIGN_OR_RETURN(const Mesh mesh, MeshFromConfig(c.ranks(), c.mesh(), c.model().num_global_experts()));
  const config::Config small = ShortModel(c, mesh, ranks, machine.threads);
  if (!ValidateLayout(small).ok() || !CheckTrainable(small).ok() || static_cast<double>(CountModel(small).whole.total()) > kMostParameters) return std::nullopt;
  moe_inproc world(ranks);
  MOE_ASSIGN_OR_RETURN(const std::vector<Trial> trials, RunCopies<Trial>(ranks, [&](int64_t rank) { return RunRank(small, ranks, rank, &world); }));
  PlanOptions options;
  options.machine = machine;
  options.machine.shared_cores = 0;
  options.imbalance = trials[0].imbalance;
  MOE_ASSIGN_OR_RETURN(const PlanReport plan, MakePlanReport(small, options));
  return plan.timeline.seconds / trials[0].seconds;
}

}  // namespace moe::capi
