// moe bench train: tokens per second of the default model, 1 rank x 2 threads and 2 ranks x 1 thread in turn, with --against
// Hugging Face's Mixtral of the same shape between them, with --versus the same with other fields.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "trainer/bench.h"
#include "trainer/commands.h"
#include "trainer/data.h"
#include "trainer/session.h"

namespace moe::trainer {
namespace {

using Clock = std::chrono::steady_clock;

int64_t PeakResidentMb() {
  rusage u;
  ::getrusage(RUSAGE_SELF, &u);
  return u.ru_maxrss / 1024;
}

// One process (or rank) of one form: prints one JSON line.
Result Once(const Arguments& a) {
  Config config;
  MOE_TRY(MakeConfig("", a, &config));
  MOE_TRY(Check(moe_config_set(config.get(), "run", "bench")));
  MOE_TRY(Check(moe_config_validate(config.get())));
  Corpus corpus;
  MOE_TRY(Corpus::Open(config.get(), &corpus));
  const int64_t warm = IntFlag(a, "--warmup", 3), steps = IntFlag(a, "--steps", 6);
  return RunRanks(a, config.get(), [&](const RankPlace& place) -> Result {
    std::unique_ptr<Session> s;
    MOE_TRY(Session::Open(config.get(), place, &s));
    const int64_t batch = GetInt(config.get(), "train.global_batch"), seq = GetInt(config.get(), "train.seq_len");
    std::vector<double> rate;
    for (int64_t step = 0; step < warm + steps; ++step) {
      const Share mine = ShareOf(batch, s->dp_rank(), s->dp_size());
      const Sequences data = corpus.Train(step * batch + mine.begin, mine.end - mine.begin);
      const moe_batch b = ToBatch(data, seq, step * batch + mine.begin);
      moe_step_stats st;
      MOE_INIT(st);
      const auto start = Clock::now();
      MOE_TRY(CheckRunning(moe_model_train_step(s->model(), &b, &st)));
      if (step >= warm) rate.push_back(static_cast<double>(st.tokens) / std::chrono::duration<double>(Clock::now() - start).count());
    }
    char* text = nullptr;
    MOE_TRY(Check(moe_model_describe(s->model(), &text)));
    const Json d = Json::parse(Take(text));
    int64_t mb = PeakResidentMb();
    MOE_TRY(CheckRunning(moe_group_all_reduce(s->world(), &mb, 1, MOE_INT64, MOE_MAX, nullptr)));
    double peak = 0;
    MOE_TRY(Check(moe_engine_measure_peak(s->engine(), &peak)));
    MOE_TRY(CheckRunning(moe_group_all_reduce(s->world(), &peak, 1, MOE_FLOAT64, MOE_SUM, nullptr)));
    std::vector<int64_t> count(static_cast<size_t>(moe_model_num_moe_layers(s->model()) * GetInt(config.get(), "model.num_global_experts")));
    MOE_TRY(Check(moe_model_expert_count(s->model(), count.data(), static_cast<int64_t>(count.size()))));
    if (s->leader()) {
      // 6 operations per active parameter and token (forward 2, backward 4), and attention's products: 6 * layers * heads * head *
      // seq per token, half of the square being masked.
      const double layers = GetDouble(config.get(), "model.num_layers"), d_model = GetDouble(config.get(), "model.d_model");
      const double flop = 6.0 * d["parameters"]["active_per_token"].get<double>() + 6.0 * layers * d_model * static_cast<double>(seq);
      std::printf("%s\n", Json({{"rates", rate}, {"peak_rss_mb", mb}, {"fma_peak_gflops", peak}, {"flop_per_token", flop}, {"parameters", d["parameters"]["global"]}, {"expert_count", count}}).dump().c_str());
      std::fflush(stdout);
    }
    return s->Close();
  });
}

struct Form { std::string name; std::vector<std::string> command; bool peer = false; std::vector<double> rates, peaks; int64_t mb = 0; double flop = 0; };

// libmoe's form of a layout with the user's fields and `versus` in their place.
Form MakeForm(const Arguments& a, int ranks, int threads, int64_t steps, int64_t warm, const std::string& versus) {
  Form f;
  f.name = absl::StrCat("libmoe ", ranks, " rank x ", threads, " thread", versus.empty() ? "" : " ", versus);
  f.command = {Self(), "bench", "train-once", absl::StrCat("--steps=", steps), absl::StrCat("--warmup=", warm)};
  std::map<std::string, std::string> fields;
  for (const auto& [path, value] : a.fields) fields[path] = value;
  fields["ranks"] = absl::StrCat(ranks);
  fields["threads"] = absl::StrCat(threads);
  for (const auto& field : absl::StrSplit(versus, ' ', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> named = absl::StrSplit(field, absl::MaxSplits('=', 1));
    fields[named.first] = named.second;
  }
  for (const auto& [path, value] : fields) f.command.push_back(absl::StrCat(path, "=", value));
  return f;
}

}  // namespace

Result BenchTrain(const Arguments& a) {
  MOE_TRY(CheckFlags(a, {"--rounds", "--steps", "--warmup", "--against", "--peer-python", "--versus"}));
  if (a.words[0] == "train-once") return Once(a);
  const int64_t rounds = IntFlag(a, "--rounds", 3), steps = IntFlag(a, "--steps", 6), warm = IntFlag(a, "--warmup", 3);
  Config config;
  MOE_TRY(MakeConfig("", a, &config));
  const auto field = [&](const char* path) { return GetText(config.get(), path); };
  std::vector<Form> forms;
  const std::string versus = a.Flag("--versus", "");
  for (const auto& [ranks, threads] : {std::pair<int, int>{1, 2}, {2, 1}}) {
    forms.push_back(MakeForm(a, ranks, threads, steps, warm, ""));
    if (!versus.empty()) forms.push_back(MakeForm(a, ranks, threads, steps, warm, versus));
  }
  if (a.Has("--against")) {
    std::string python, script;
    MOE_TRY(PeerPython(a, "torch, transformers", &python));
    MOE_TRY(PeerScript(a, "train_hf.py", &script));
    const std::vector<std::string> shape = {"--vocab", field("model.vocab_size"), "--width", field("model.d_model"), "--layers", field("model.num_layers"), "--heads", field("model.num_heads"), "--kv-heads", field("model.num_kv_heads"),
                                            "--experts", field("model.num_global_experts"), "--k", field("model.top_k"), "--f", field("model.d_hidden"), "--seq", field("train.seq_len"), "--steps", absl::StrCat(steps), "--warmup", absl::StrCat(warm)};
    const int64_t batch = GetInt(config.get(), "train.global_batch");
    Form one{"Hugging Face 1 process x 2 threads", {python, script, "--threads", "2", "--batch", absl::StrCat(batch)}, true, {}, {}, 0, 0};
    one.command.insert(one.command.end(), shape.begin(), shape.end());
    forms.push_back(one);
    Form two{"Hugging Face 2 processes x 1, DDP", {python, "-m", "torch.distributed.run", "--nproc-per-node", "2", script, "--ranks", "2", "--threads", "1", "--batch", absl::StrCat(batch / 2)}, true, {}, {}, 0, 0};
    two.command.insert(two.command.end(), shape.begin(), shape.end());
    forms.push_back(two);
  }
  for (int64_t r = 0; r < rounds; ++r) {
    for (Form& f : forms) {
      std::vector<Json> lines;
      MOE_TRY(RunForJson(f.command, &lines));
      for (const Json& j : lines) {
        if (j.contains("rates"))
          for (const Json& v : j["rates"]) f.rates.push_back(v.get<double>());
        if (j.contains("tokens_per_s")) f.rates.push_back(j["tokens_per_s"].get<double>());
        if (j.contains("peak_rss_mb")) f.mb = std::max(f.mb, j["peak_rss_mb"].get<int64_t>());
        if (j.contains("fma_peak_gflops")) f.peaks.push_back(j["fma_peak_gflops"].get<double>());
        if (j.contains("flop_per_token")) f.flop = j["flop_per_token"].get<double>();
      }
      std::fprintf(stderr, "round %lld/%lld  %-36s %8.0f tokens/s\n", static_cast<long long>(r + 1), static_cast<long long>(rounds), f.name.c_str(), SpreadOf(f.rates).median);
    }
  }
  std::fprintf(stderr, "\n%-36s %10s %8s %8s %12s %10s\n", "form", "tokens/s", "min", "max", "RSS MB/rank", "% of peak");
  for (const Form& f : forms) {
    const Spread s = SpreadOf(f.rates);
    const double percent = f.peaks.empty() ? 0 : s.median * f.flop / 1e9 / SpreadOf(f.peaks).median * 100;
    Json j = {{"bench", "train"}, {"form", f.name}, {"tokens_per_s", s.median}, {"min", s.low}, {"max", s.high}, {"peak_rss_mb", f.mb}};
    if (percent > 0) j["percent_of_peak"] = percent;
    std::printf("%s\n", j.dump().c_str());
    std::fprintf(stderr, "%-36s %10.0f %8.0f %8.0f %12lld %10s\n", f.name.c_str(), s.median, s.low, s.high, static_cast<long long>(f.mb), percent > 0 ? absl::StrFormat("%.1f", percent).c_str() : "");
  }
  double best = 0;
  for (const Form& f : forms)
    if (f.peer) best = std::max(best, SpreadOf(f.rates).median);
  for (const Form& f : forms)
    if (!f.peer && best > 0) std::fprintf(stderr, "%s: %.2fx the better of the two peers\n", f.name.c_str(), SpreadOf(f.rates).median / best);
  if (versus.empty()) return {};
  for (size_t i = 0; i < 4; i += 2) std::fprintf(stderr, "%s: time of a step %.3f x that without\n", forms[i + 1].name.c_str(), SpreadOf(forms[i].rates).median / SpreadOf(forms[i + 1].rates).median);
  return {};
}

}  // namespace moe::trainer
