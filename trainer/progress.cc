#include "trainer/progress.h"

#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace moe::trainer {

std::string Thousands(int64_t n) {
  std::string s = std::to_string(n);
  for (int64_t i = static_cast<int64_t>(s.size()) - 3; i > (n < 0 ? 1 : 0); i -= 3) s.insert(static_cast<size_t>(i), ",");
  return s;
}

std::string Mebibytes(int64_t bytes) { return absl::StrFormat("%.0f MiB", static_cast<double>(bytes) / (1 << 20)); }

std::string ModelTable(const Json& m, const Json& e, const moe_config* c) {
  const auto row = [](const char* name, const std::string& value) { return absl::StrFormat("  %-22s %s\n", name, value); };
  const auto n = [&](const char* group, const char* key) { return m.at(group).at(key).get<int64_t>(); };
  std::string s = "model\n";
  s += row("layers", absl::StrCat(GetText(c, "model.num_layers"), " (", n("experts", "layers"), " with experts), d_model ", GetText(c, "model.d_model"), ", ", GetText(c, "model.num_heads"), " heads, ",
                                  GetText(c, "model.num_kv_heads"), " kv heads"));
  s += row("experts", absl::StrCat(n("experts", "global"), " in each MoE layer, ", n("experts", "rank"), " on this rank, top ", n("experts", "top_k"), ", gate ", GetText(c, "gate.kind"), ", ", GetText(c, "expert.kind"),
                                   " d_hidden ", GetText(c, "model.d_hidden")));
  s += row("parameters, global", absl::StrCat(Thousands(n("parameters", "global")), " (dense ", Thousands(n("parameters", "dense")), ", experts ", Thousands(n("parameters", "expert_global")), "), ",
                                              Thousands(n("parameters", "active_per_token")), " active per token"));
  s += row("parameters, this rank", absl::StrCat(Thousands(n("parameters", "rank")), " (dense ", Thousands(n("parameters", "dense_rank")), ", experts ", Thousands(n("parameters", "expert_rank")), ")"));
  s += row("memory, this rank", absl::StrCat("about ", Mebibytes(n("memory_bytes", "total_estimate")), " (weights ", Mebibytes(n("memory_bytes", "weights")), ", gradients ", Mebibytes(n("memory_bytes", "gradients")),
                                             ", optimizer ", Mebibytes(n("memory_bytes", "optimizer")), ", activations ", Mebibytes(n("memory_bytes", "activations_estimate")), ")"));
  const auto axis = [&](const char* a) { return e.at("mesh").at(a).at("size").get<int64_t>(); };
  std::string axes = absl::StrCat("dp ", axis("dp"));
  for (const char* a : {"tp", "cp", "pp"})
    if (axis(a) > 1) absl::StrAppend(&axes, ", ", a, " ", axis(a));
  absl::StrAppend(&axes, "; experts: ep ", axis("ep"));
  for (const char* a : {"etp", "edp"})
    if (axis(a) > 1) absl::StrAppend(&axes, ", ", a, " ", axis(a));
  s += row("ranks", absl::StrCat(e.at("world_size").get<int64_t>(), " (", axes, "), ", e.at("device").at("threads").get<int64_t>(), " thread(s) each, transport ",
                                 e.at("transport").get<std::string>()));
  if (m.contains("pipeline")) {
    std::string layers;
    for (const Json& chunk : m.at("pipeline").at("chunks")) {
      const int64_t first = chunk.at("first").get<int64_t>(), count = chunk.at("layers").get<int64_t>();
      absl::StrAppend(&layers, layers.empty() ? "" : " and ", count == 0 ? "none" : count == 1 ? absl::StrCat(first) : absl::StrCat(first, "-", first + count - 1));
    }
    s += row("pipeline", absl::StrCat(m.at("pipeline").at("kind").get<std::string>(), ", ", n("pipeline", "stages"), " stages", n("pipeline", "virtual_stages") > 1 ? absl::StrCat(" of ", n("pipeline", "virtual_stages"), " parts") : "",
                                      ", ", n("pipeline", "micro_batches"), " micro-batches of ", n("data", "sequences_per_micro_batch"), " sequence(s) per step; layers of this stage: ", layers));
  }
  s += row("device", e.at("device").at("details").get<std::string>());
  for (const Json& peer : e.at("peers"))
    if (!peer.get<std::string>().empty()) s += row("peer", peer.get<std::string>());
  return s;
}

Progress::Progress(bool show, int64_t first, int64_t steps, int64_t every)
    : show_(show), terminal_(::isatty(1) == 1), first_(first), steps_(steps), every_(every), start_(std::chrono::steady_clock::now()) {}

void Progress::Step(int64_t step, double loss, double tokens_per_s, double imbalance) {
  if (!show_) return;
  const int64_t done = step + 1;
  if (!terminal_ && done % every_ != 0 && done != steps_ && step != first_) return;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const int64_t left = static_cast<int64_t>(seconds / static_cast<double>(done - first_) * static_cast<double>(steps_ - done));
  std::printf("%sstep %lld/%lld  loss %.4f  %s tokens/s  %lld:%02lld left  load max/mean %.2f%s", terminal_ ? "\r\033[K" : "", static_cast<long long>(done), static_cast<long long>(steps_), loss,
              Thousands(static_cast<int64_t>(tokens_per_s)).c_str(), static_cast<long long>(left / 60), static_cast<long long>(left % 60), imbalance, terminal_ ? "" : "\n");
  std::fflush(stdout);
  open_ = terminal_;
}

void Progress::Say(const std::string& line) {
  if (!show_) return;
  if (open_) std::printf("\n");
  open_ = false;
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

}  // namespace moe::trainer
