// moe bench pipeline: the bubble of each schedule, run by the engine's stage runner, against its formula; the time that a plan
// and its proof take against the number of ranks; with --predict the plan's step time against the measured one.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "trainer/bench.h"
#include "trainer/commands.h"

namespace moe::trainer {
namespace {

using Clock = std::chrono::steady_clock;

Result IntList(const Arguments& a, const char* flag, const char* otherwise, std::vector<int64_t>* out) {
  for (const auto& part : absl::StrSplit(a.Flag(flag, otherwise), ',')) {
    int64_t v = 0;
    if (!absl::SimpleAtoi(part, &v) || v < 1) return Result::Misuse(absl::StrCat(flag, " is '", a.Flag(flag, otherwise), "', must be positive numbers with commas between them"));
    out->push_back(v);
  }
  return {};
}

Result Bubbles(const Arguments& a) {
  std::vector<int64_t> stages, micro;
  MOE_TRY(IntList(a, "--stages", "2,4", &stages));
  MOE_TRY(IntList(a, "--micro-batches", "4,8", &micro));
  const int64_t steps = IntFlag(a, "--steps", 9);
  double forward = 8;
  MOE_TRY(PositiveFlag(a, "--forward-ms", &forward));
  double backward = 2 * forward;
  MOE_TRY(PositiveFlag(a, "--backward-ms", &backward));
  double weight = backward / 2;
  MOE_TRY(PositiveFlag(a, "--weight-ms", &weight));
  std::fprintf(stderr, "Bubble of the schedules: F %.1f ms, B %.1f ms of which W %.1f ms, %lld steps each\n\n%-12s %7s %6s %9s %9s %17s %6s  %s\n", forward, backward, weight, static_cast<long long>(steps), "schedule", "stages", "micro", "formula",
               "measured", "lowest..highest", "ratio", "stages compute by");
  for (const int64_t P : stages) {
    for (const int64_t M : micro) {
      for (const char* kind : {"gpipe", "1f1b", "interleaved", "zero_bubble"}) {
        if (std::string(kind) == "interleaved" && M % P != 0) {
          std::fprintf(stderr, "%-12s %7lld %6lld  left out: needs micro-batches in a multiple of the stages\n", kind, static_cast<long long>(P), static_cast<long long>(M));
          continue;
        }
        moe_schedule_options o;
        MOE_INIT(o);
        o.kind = kind;
        o.stages = P;
        o.micro_batches = M;
        o.forward_ms = forward;
        o.backward_ms = backward;
        o.backward_weight_ms = weight;
        o.steps = steps;
        moe_schedule_timing t;
        MOE_INIT(t);
        MOE_TRY(Check(moe_measure_schedule(&o, &t)));
        const double ratio = t.formula > 0 ? t.bubble / t.formula : 1;
        std::printf("%s\n", Json({{"bench", "pipeline"}, {"schedule", kind}, {"stages", P}, {"micro_batches", M}, {"formula", t.formula}, {"bubble", t.bubble}, {"bubble_min", t.bubble_low}, {"bubble_max", t.bubble_high},
                                  {"ratio", ratio}, {"step_seconds", t.step_seconds}, {"busy_loop", t.busy_loop != 0}}).dump().c_str());
        std::fflush(stdout);
        std::fprintf(stderr, "%-12s %7lld %6lld %8.2f%% %8.2f%%  %6.2f%%..%6.2f%% %6.3f  %s\n", kind, static_cast<long long>(P), static_cast<long long>(M), 100 * t.formula, 100 * t.bubble, 100 * t.bubble_low, 100 * t.bubble_high, ratio,
                     t.busy_loop ? "busy loop" : "waiting for the clock");
      }
    }
  }
  return {};
}

Result SetFields(moe_config* c, const std::vector<std::string>& fields) {
  for (const std::string& f : fields) {
    const std::pair<std::string, std::string> kv = absl::StrSplit(f, absl::MaxSplits('=', 1));
    MOE_TRY(Check(moe_config_set(c, kv.first.c_str(), kv.second.c_str())));
  }
  return {};
}

// DeepSeek-V3's shape over more and more ranks.
Result PlanTimes(const Arguments& a) {
  std::vector<int64_t> ranks;
  MOE_TRY(IntList(a, "--ranks", "100,1000,10000,100000", &ranks));
  std::fprintf(stderr, "\nPlan and proof, DeepSeek-V3's layers\n\n%9s %10s %14s %9s  %s\n", "ranks", "seconds", "us per rank", "MiB", "verdict");
  for (const int64_t n : ranks) {
    moe_config* raw = nullptr;
    MOE_TRY(Check(moe_config_create(&raw)));
    const Config config(raw);
    int64_t pp = n >= 4096 ? 16 : n >= 512 ? 8 : 4;
    while (n % pp != 0) pp /= 2;
    int64_t ep = std::min<int64_t>(64, n / pp);
    while (n / pp % ep != 0 || 256 % ep != 0) --ep;   // equal shares of 256 experts
    MOE_TRY(SetFields(raw, {absl::StrCat("ranks=", n), absl::StrCat("mesh.pp=", pp), absl::StrCat("mesh.ep=", ep), "model.num_layers=61", "model.num_dense_layers=3", "model.num_global_experts=256", "model.top_k=8", "model.d_model=7168",
                            "model.d_hidden=2048", "model.num_heads=128", "model.num_kv_heads=128", "model.vocab_size=129280", "train.seq_len=4096", absl::StrCat("train.global_batch=", n / pp * 4 * pp), "train.micro_batch=1"}));
    moe_plan_options o;
    MOE_INIT(o);
    const auto start = Clock::now();
    moe_plan* made = nullptr;
    MOE_TRY(Check(moe_plan_create(raw, &o, &made)));
    const Plan plan(made);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    int32_t is_free = 0;
    MOE_TRY(Check(moe_plan_is_free(made, &is_free, nullptr)));
    rusage use{};
    ::getrusage(RUSAGE_SELF, &use);
    std::printf("%s\n", Json({{"bench", "plan"}, {"ranks", n}, {"seconds", seconds}, {"peak_rss_mb", use.ru_maxrss / 1024}, {"free", is_free != 0}}).dump().c_str());
    std::fprintf(stderr, "%9lld %10.3f %14.3f %9ld  %s\n", static_cast<long long>(n), seconds, 1e6 * seconds / static_cast<double>(n), use.ru_maxrss / 1024, is_free ? "free of deadlock" : "NOT FREE");
  }
  return {};
}

struct Layout {
  Layout(const char* n, std::vector<std::string> f) : name(n), fields(std::move(f)) {}
  const char* name;
  std::vector<std::string> fields;
  std::vector<double> measured, predicted, imbalance, ratio;   // steps; rounds
};

// Mean over layers of the routes to the busiest of `ep` blocks of experts over the mean of the blocks.
double Imbalance(const std::vector<int64_t>& count, int64_t experts, int64_t ep) {
  double sum = 0;
  const int64_t layers = static_cast<int64_t>(count.size()) / experts, block = experts / ep;
  for (int64_t l = 0; l < layers; ++l) {
    double most = 0, all = 0;
    for (int64_t r = 0; r < ep; ++r) {
      double rank = 0;
      for (int64_t e = 0; e < block; ++e) rank += static_cast<double>(count[l * experts + r * block + e]);
      most = std::max(most, rank);
      all += rank;
    }
    sum += most * static_cast<double>(ep) / all;
  }
  return layers > 0 ? sum / static_cast<double>(layers) : 1;
}

// The step time of a plan: rates measured now.
Result Predict(const Arguments& a, const std::vector<std::string>& fields, double imbalance, double* seconds) {
  Config config;
  MOE_TRY(MakeConfig("", a, &config));
  MOE_TRY(SetFields(config.get(), fields));
  moe_plan_options o;
  MOE_INIT(o);
  o.measure = 1;
  o.imbalance = imbalance;
  moe_plan* made = nullptr;
  MOE_TRY(Check(moe_plan_create(config.get(), &o, &made)));
  const Plan plan(made);
  char* text = nullptr;
  MOE_TRY(Check(moe_plan_json(made, &text)));
  *seconds = Json::parse(Take(text))["step_seconds"].get<double>();
  return {};
}

Result Measure(const Arguments& a, const std::vector<std::string>& fields, int64_t steps, std::vector<double>* seconds, double* imbalance) {
  std::vector<std::string> command = {Self(), "bench", "train-once", absl::StrCat("--steps=", steps), "--warmup=2"};
  Config config;
  MOE_TRY(MakeConfig("", a, &config));
  MOE_TRY(SetFields(config.get(), fields));
  const double tokens = static_cast<double>(GetInt(config.get(), "train.global_batch") * GetInt(config.get(), "train.seq_len"));
  for (const auto& [path, value] : a.fields) command.push_back(absl::StrCat(path, "=", value));
  command.insert(command.end(), fields.begin(), fields.end());
  std::vector<Json> lines;
  MOE_TRY(RunForJson(command, &lines));
  for (const Json& j : lines) {
    if (!j.contains("rates")) continue;
    for (const Json& rate : j["rates"]) seconds->push_back(tokens / rate.get<double>());
    *imbalance = Imbalance(j["expert_count"].get<std::vector<int64_t>>(), GetInt(config.get(), "model.num_global_experts"), std::max<int64_t>(1, GetInt(config.get(), "mesh.ep")));
  }
  return {};
}

Result Predictions(const Arguments& a) {
  const int64_t rounds = IntFlag(a, "--rounds", 3), steps = IntFlag(a, "--steps", 5);
  std::vector<Layout> layouts = {
      {"1 rank", {"ranks=1"}},
      {"dp 2", {"ranks=2", "mesh.ep=1"}},
      {"dp 2, ep 2", {"ranks=2", "mesh.ep=2"}},
      {"tp 2, ep 2", {"ranks=2", "mesh.tp=2", "mesh.ep=2"}},
      {"cp 2, ep 2", {"ranks=2", "mesh.cp=2", "mesh.ep=2"}},
      {"etp 2", {"ranks=2", "mesh.etp=2", "mesh.ep=1"}},
      {"pp 2, gpipe", {"ranks=2", "mesh.pp=2", "pipeline.kind=gpipe"}},
      {"pp 2, 1f1b", {"ranks=2", "mesh.pp=2", "pipeline.kind=1f1b"}},
      {"pp 2, interleaved", {"ranks=2", "mesh.pp=2", "pipeline.kind=interleaved"}},
      {"pp 2, zero_bubble", {"ranks=2", "mesh.pp=2", "pipeline.kind=zero_bubble"}},
  };
  std::fprintf(stderr, "\nStep time: the plan's against the measured one, %lld rounds in turn\n", static_cast<long long>(rounds));
  for (int64_t r = 0; r < rounds; ++r) {
    for (Layout& l : layouts) {
      // What the routing is belongs to the data, not to the layout: the plan is told.
      double seconds = 0, imbalance = 1;
      std::vector<double> now;
      MOE_TRY(Measure(a, l.fields, steps, &now, &imbalance));
      MOE_TRY(Predict(a, l.fields, imbalance, &seconds));
      l.measured.insert(l.measured.end(), now.begin(), now.end());
      l.predicted.push_back(seconds);
      l.ratio.push_back(seconds / SpreadOf(now).median);
      l.imbalance.push_back(imbalance);
      std::fprintf(stderr, "round %lld/%lld  %-18s predicted %8.1f ms  measured %8.1f ms\n", static_cast<long long>(r + 1), static_cast<long long>(rounds), l.name, 1e3 * seconds, 1e3 * SpreadOf(now).median);
    }
  }
  std::fprintf(stderr, "\nratio: of a round's prediction to the steps measured just before it, the median of the rounds\n%-18s %13s %12s %19s %8s %13s %10s\n", "layout", "predicted ms", "measured ms", "lowest..highest", "ratio", "lowest..high.", "imbalance");
  int64_t within = 0;
  for (const Layout& l : layouts) {
    const Spread p = SpreadOf(l.predicted), m = SpreadOf(l.measured), ratio = SpreadOf(l.ratio);
    within += std::abs(ratio.median - 1) <= 0.15;
    std::printf("%s\n", Json({{"bench", "predict"}, {"layout", l.name}, {"predicted_ms", 1e3 * p.median}, {"measured_ms", 1e3 * m.median}, {"measured_min", 1e3 * m.low}, {"measured_max", 1e3 * m.high}, {"ratio", ratio.median}, {"ratio_min", ratio.low}, {"ratio_max", ratio.high}, {"imbalance", SpreadOf(l.imbalance).median}}).dump().c_str());
    std::fprintf(stderr, "%-18s %13.1f %12.1f  %8.1f..%8.1f %8.3f %5.3f..%6.3f %10.3f\n", l.name, 1e3 * p.median, 1e3 * m.median, 1e3 * m.low, 1e3 * m.high, ratio.median, ratio.low, ratio.high, SpreadOf(l.imbalance).median);
  }
  std::fprintf(stderr, "%lld of %zu within 15%%\n", static_cast<long long>(within), layouts.size());
  return {};
}

}  // namespace

Result BenchPipeline(const Arguments& a) {
  MOE_TRY(CheckFlags(a, {"--stages", "--micro-batches", "--steps", "--rounds", "--forward-ms", "--backward-ms", "--weight-ms", "--ranks", "--predict"}));
  if (a.Has("--predict")) return Predictions(a);
  MOE_TRY(Bubbles(a));
  return PlanTimes(a);
}

}  // namespace moe::trainer
