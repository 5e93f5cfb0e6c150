#include "capi/step_efficiency.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

#include "capi/copies.h"
#include "core/model/model.h"
#include "core/plan/report/plan_report.h"
#include "core/plan/validate.h"
#include "experts/registry.h"

namespace moe::capi {
namespace {

constexpr double kMostParameters = 64e6;
constexpr int64_t kMostTokens = 4096;
constexpr int kSteps = 4;   // the first is not counted

// One rank's share of a micro-batch through at most two layers, on one rank.
config::Config ShortModel(const config::Config& c, const Mesh& mesh) {
  config::Config s = c;
  const int64_t dp = mesh.size(Axis::kDp), share = (c.train().global_batch() + dp - 1) / dp, micro = std::min(share, MicroBatchSize(c, mesh.size(Axis::kPp), share));
  const int64_t rank_tokens = micro * c.train().seq_len() / (mesh.size(Axis::kTp) * mesh.size(Axis::kCp));
  s.set_ranks(1);
  s.clear_mesh();
  s.clear_pipeline();
  s.mutable_model()->set_num_layers(std::min<int64_t>(2, c.model().num_layers()));
  s.mutable_model()->set_num_dense_layers(std::min(c.model().num_dense_layers(), s.model().num_layers() - 1));
  s.mutable_train()->set_global_batch(std::max<int64_t>(1, std::min(rank_tokens, kMostTokens) / c.train().seq_len()));
  s.mutable_train()->set_micro_batch(0);
  return s;
}

// Seconds of a step: the median.
absl::StatusOr<double> RunCopy(const config::Config& c, int64_t threads, const ModuleFactory* modules, uint64_t seed) {
  MOE_ASSIGN_OR_RETURN(const auto device, MakeCpuDevice(static_cast<int>(threads)));
  ModelContext context;
  context.device = device.get();
  context.modules = modules;
  MOE_ASSIGN_OR_RETURN(const auto model, Model::Make(c, context));
  const int64_t n = c.train().global_batch() * c.train().seq_len();
  std::vector<int32_t> ids(n + 1);
  uint64_t state = seed;
  for (int32_t& id : ids) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    id = static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(c.model().vocab_size()));
  }
  const Batch batch{ids.data(), ids.data() + 1, c.train().global_batch(), c.train().seq_len(), 0};
  std::vector<double> seconds;
  for (int i = 0; i < kSteps; ++i) {
    StepStats stats;
    const auto begin = std::chrono::steady_clock::now();
    MOE_RETURN_IF_ERROR(model->ForwardBackward(batch, &stats));
    MOE_RETURN_IF_ERROR(model->OptimizerStep(&stats));
    if (i > 0) seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace

absl::StatusOr<std::optional<double>> StepEfficiency(const config::Config& c, const Machine& machine, int64_t copies) {
  MOE_ASSIGN_OR_RETURN(const Mesh mesh, MeshFromConfig(c.ranks(), c.mesh(), c.model().num_global_experts()));
  const config::Config small = ShortModel(c, mesh);
  if (!CheckTrainable(small).ok() || static_cast<double>(CountModel(small).whole.total()) > kMostParameters) return std::nullopt;
  PlanOptions options;
  options.machine = machine;
  options.machine.shared_cores = 0;
  MOE_ASSIGN_OR_RETURN(const PlanReport plan, MakePlanReport(small, options));
  const auto modules = MakeDefaultRegistry();
  MOE_ASSIGN_OR_RETURN(const std::vector<double> measured, RunCopies<double>(copies, [&](int64_t i) { return RunCopy(small, machine.threads, modules.get(), 17 + static_cast<uint64_t>(i)); }));
  const double sum = std::accumulate(measured.begin(), measured.end(), 0.0);
  return plan.timeline.seconds / (sum / static_cast<double>(copies));
}

}  // namespace moe::capi
