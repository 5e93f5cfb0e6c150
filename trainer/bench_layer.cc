// moe bench layer: forward and backward of one MoE layer against the machine's limit, and with --against beside PyTorch.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/bench.h"
#include "trainer/commands.h"

namespace moe::trainer {
namespace {

using Clock = std::chrono::steady_clock;

struct Size { const char* name; int64_t experts, top_k, d_model, d_hidden, tokens; const char* kind; };
constexpr Size kSizes[] = {{"gelu_e8", 8, 2, 512, 2048, 4096, "gelu"}, {"mixtral", 8, 2, 512, 1792, 2048, "swiglu"}, {"olmoe", 64, 8, 512, 512, 2048, "swiglu"}};

// Numbers without a library: a fixed sequence, roughly normal.
void FillNormal(std::vector<float>* x, uint64_t seed) {
  uint64_t s = seed;
  const auto uniform = [&] { s = s * 6364136223846793005ull + 1442695040888963407ull; return static_cast<double>(s >> 11) * 0x1.0p-53; };
  for (float& v : *x) v = static_cast<float>(std::sqrt(-2 * std::log(1 - uniform())) * std::cos(6.283185307179586 * uniform()));
}

class Subject {
 public:
  Result Open(const Size& size, int64_t threads) {
    size_ = size;
    moe_config* c = nullptr;
    MOE_TRY(Check(moe_config_create(&c)));
    config_.reset(c);
    const std::pair<const char*, std::string> fields[] = {{"model.num_global_experts", absl::StrCat(size.experts)}, {"model.top_k", absl::StrCat(size.top_k)}, {"model.d_model", absl::StrCat(size.d_model)},
                                                          {"model.d_hidden", absl::StrCat(size.d_hidden)}, {"expert.kind", size.kind}, {"ranks", "1"}, {"threads", absl::StrCat(threads)}};
    for (const auto& [path, value] : fields) MOE_TRY(Check(moe_config_set(c, path, value.c_str())));
    moe_engine_options o;
    MOE_INIT(o);
    moe_engine* e = nullptr;
    moe_group* g = nullptr;
    moe_layer* l = nullptr;
    MOE_TRY(Check(moe_engine_create(c, &o, &e)));
    engine_.reset(e);
    MOE_TRY(Check(moe_group_world(e, &g)));
    group_.reset(g);
    MOE_TRY(Check(moe_layer_create(e, g, &l)));
    layer_.reset(l);
    const size_t n = static_cast<size_t>(size.tokens * size.d_model);
    x_.resize(n), y_.resize(n), dy_.resize(n), dx_.resize(n);
    FillNormal(&x_, 1);
    FillNormal(&dy_, 2);
    return {};
  }
  Result Round(double* forward_s, double* backward_s) {
    MOE_TRY(Check(moe_layer_zero_grad(layer_.get())));
    const auto t0 = Clock::now();
    MOE_TRY(Check(moe_layer_forward(layer_.get(), x_.data(), size_.tokens, nullptr, y_.data(), nullptr)));
    const auto t1 = Clock::now();
    MOE_TRY(Check(moe_layer_backward(layer_.get(), dy_.data(), 1, dx_.data())));
    *forward_s = std::chrono::duration<double>(t1 - t0).count();
    *backward_s = std::chrono::duration<double>(Clock::now() - t1).count();
    return {};
  }
  Result Peak(double* gflops) { return Check(moe_engine_measure_peak(engine_.get(), gflops)); }

 private:
  Size size_{};
  Config config_;
  Engine engine_;
  Group group_;
  Layer layer_;
  std::vector<float> x_, y_, dy_, dx_;
};

}  // namespace

Result BenchLayer(const Arguments& a) {
  MOE_TRY(CheckFlags(a, {"--size", "--tokens", "--threads", "--rounds", "--against", "--peer-python"}));
  Size size = kSizes[0];
  const std::string name = a.Flag("--size", "gelu_e8");
  bool known = false;
  for (const Size& s : kSizes)
    if (name == s.name) size = s, known = true;
  if (!known) return Result::Misuse(absl::StrCat("--size is '", name, "'; known: gelu_e8, mixtral, olmoe"));
  size.tokens = IntFlag(a, "--tokens", size.tokens);
  const int64_t threads = IntFlag(a, "--threads", 2), rounds = IntFlag(a, "--rounds", 7);
  std::string python, script;
  if (a.Has("--against")) {
    MOE_TRY(PeerPython(a, "torch", &python));
    MOE_TRY(PeerScript(a, "layer_torch.py", &script));
  }
  Subject subject;
  MOE_TRY(subject.Open(size, threads));
  const double up = std::string(size.kind) == "swiglu" ? 3 : 2;
  const double flop = 3.0 * 2.0 * static_cast<double>(size.tokens * size.top_k) * static_cast<double>(size.d_model * size.d_hidden) * up;
  std::vector<double> forward, backward, total, peak, share;
  std::vector<Json> peers;
  double f = 0, b = 0, p = 0;
  for (int warm = 0; warm < 2; ++warm) MOE_TRY(subject.Round(&f, &b));
  // The peer's rounds stand between halves of ours, so that both see the same machine.
  for (int half = 0; half < 2; ++half) {
    for (int64_t r = 0; r < (rounds + 1) / 2; ++r) {
      MOE_TRY(subject.Peak(&p));
      MOE_TRY(subject.Round(&f, &b));
      forward.push_back(f * 1e3);
      backward.push_back(b * 1e3);
      total.push_back((f + b) * 1e3);
      peak.push_back(p);
      share.push_back(flop / (f + b) / 1e9 / p * 100);
    }
    if (a.Has("--against"))
      MOE_TRY(RunForJson({python, script, "--size", size.name, "--tokens", absl::StrCat(size.tokens), "--threads", absl::StrCat(threads), "--rounds", absl::StrCat((rounds + 1) / 2)}, &peers));
  }
  const Spread t = SpreadOf(total), s = SpreadOf(share), pk = SpreadOf(peak);
  const Json j = {{"bench", "layer"}, {"form", "libmoe"}, {"size", size.name}, {"E", size.experts}, {"K", size.top_k}, {"d", size.d_model}, {"f", size.d_hidden}, {"T", size.tokens}, {"kind", size.kind},
                  {"threads", threads}, {"ms", t.median}, {"ms_min", t.low}, {"ms_max", t.high}, {"forward_ms", SpreadOf(forward).median}, {"backward_ms", SpreadOf(backward).median},
                  {"gflops", flop / t.median / 1e6}, {"fma_peak_gflops", pk.median}, {"percent_of_peak", s.median}, {"percent_min", s.low}, {"percent_max", s.high}};
  std::printf("%s\n", j.dump().c_str());
  for (const Json& line : peers) std::printf("%s\n", line.dump().c_str());
  std::fprintf(stderr, "\n%-22s %10s %8s %8s %9s %9s %8s\n", "form", "ms", "fwd", "bwd", "GFLOP/s", "% of peak", "ours is");
  std::fprintf(stderr, "%-22s %10.1f %8.1f %8.1f %9.1f %8.1f%%\n", "libmoe", t.median, SpreadOf(forward).median, SpreadOf(backward).median, flop / t.median / 1e6, s.median);
  std::vector<std::string> forms;
  for (const Json& line : peers)
    if (line.contains("ms") && std::find(forms.begin(), forms.end(), line["form"].get<std::string>()) == forms.end()) forms.push_back(line["form"]);
  for (const std::string& form : forms) {
    std::vector<double> ms;
    for (const Json& line : peers)
      if (line.contains("ms") && line["form"] == form) ms.push_back(line["ms"].get<double>());
    const double m = SpreadOf(ms).median;
    std::fprintf(stderr, "%-22s %10.1f %17s %9.1f %8.1f%% %7.2fx\n", form.c_str(), m, "", flop / m / 1e6, flop / m / 1e6 / pk.median * 100, m / t.median);
  }
  std::fprintf(stderr, "FMA peak %.0f GFLOP/s (%.0f to %.0f), %lld threads, %zu rounds, spread of ms %.1f to %.1f\n", pk.median, pk.low, pk.high, static_cast<long long>(threads), total.size(), t.low, t.high);
  return {};
}

}  // namespace moe::trainer
