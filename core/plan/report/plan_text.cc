// The plan for people.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/plan/report/picture.h"
#include "core/plan/report/plan_report.h"

namespace moe {
namespace {

constexpr int64_t kMostStages = 40;   // lines of the table

// Three significant digits and a unit.
std::string Scaled(double value, double base, const std::vector<const char*>& units) {
  size_t u = 0;
  while (u + 1 < units.size() && std::fabs(value) >= 0.9995 * base) value /= base, ++u;
  const int digits = u == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return absl::StrFormat("%.*f%s%s", digits, value, units[u][0] ? " " : "", units[u]);
}
std::string Count(double n) { return Scaled(n, 1000, {"", "k", "M", "G", "T"}); }
std::string Bytes(double n) { return Scaled(n, 1024, {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}); }
std::string Seconds(double s) { return s >= 1 ? absl::StrFormat("%.2f s", s) : s >= 1e-3 ? absl::StrFormat("%.2f ms", s * 1e3) : absl::StrFormat("%.1f us", s * 1e6); }
std::string Billions(double n) { return n >= 1e12 ? absl::StrFormat("%.4f trillion", n / 1e12) : n >= 1e9 ? absl::StrFormat("%.2f billion", n / 1e9) : absl::StrFormat("%.3f million", n / 1e6); }

std::string LayersOf(const StagePlan& s) {
  return absl::StrJoin(s.chunks, " + ", [](std::string* out, const Chunk& c) {
    if (c.num_layers == 0) absl::StrAppend(out, "none");
    else if (c.num_layers == 1) absl::StrAppend(out, c.first_layer);
    else absl::StrAppend(out, c.first_layer, "-", c.first_layer + c.num_layers - 1);
    if (c.embedding) absl::StrAppend(out, " emb");
    if (c.head) absl::StrAppend(out, " head");
  });
}

void AppendModel(const PlanReport& r, std::string* out) {
  const config::ModelConfig& m = r.config.model();
  const auto& w = r.model.whole;
  absl::StrAppend(out, "model      ", Billions(static_cast<double>(w.total())), " parameters, ", Billions(static_cast<double>(r.model.active_per_token)), " active for a token\n");
  absl::StrAppend(out, "           dense ", Count(static_cast<double>(w.dense)), " (attention, dense networks, vocabulary), replicated ", Count(static_cast<double>(w.replicated)), " (routers, norms), experts ",
                  Count(static_cast<double>(w.expert)), "\n");
  absl::StrAppend(out, "           ", m.num_layers(), " layers", m.num_dense_layers() > 0 ? absl::StrCat(", the first ", m.num_dense_layers(), " dense") : "", "; model.num_global_experts ", m.num_global_experts(),
                  " experts in every MoE layer over all ranks, top ", m.top_k(), m.num_shared_experts() > 0 ? absl::StrCat(", ", m.num_shared_experts(), " shared") : "", "\n");
}

void AppendMesh(const PlanReport& r, std::string* out) {
  const Mesh& mesh = *r.mesh;
  const auto n = [&](Axis a) { return absl::StrCat(Name(a), " ", mesh.size(a)); };
  absl::StrAppend(out, "mesh       ", mesh.world_size(), " ranks, ", mesh.world_size() / mesh.size(Axis::kPp), " in each of ", mesh.size(Axis::kPp), mesh.size(Axis::kPp) == 1 ? " stage" : " stages", "\n");
  absl::StrAppend(out, "           attention  ", n(Axis::kTp), " x ", n(Axis::kCp), " x ", n(Axis::kDp), " x ", n(Axis::kPp), "   (first axis fastest)\n");
  absl::StrAppend(out, "           experts    ", n(Axis::kEtp), " x ", n(Axis::kEp), " x ", n(Axis::kEdp), " x ", n(Axis::kPp), "\n");
  if (!r.groups.empty()) absl::StrAppend(out, "groups     number x ranks, and which ranks: the first, the second, the last; a-b/s is every s-th\n");
  for (const GroupSummary& g : r.groups) {
    const size_t last = g.examples.size() - 1;
    std::string which;
    for (size_t i = 0; i <= last; ++i) absl::StrAppend(&which, i == 0 ? "" : i == last && g.groups > static_cast<int64_t>(last) + 1 ? " .. " : " ", "[", g.examples[i], "]");
    absl::StrAppend(out, absl::StrFormat("  %-8s %8s x %-7d ", Name(g.kind), absl::StrCat(g.groups), g.size), which, "\n");
  }
}

void AppendExperts(const PlanReport& r, std::string* out) {
  if (r.model.routed_experts == 0) return;
  const int64_t E = r.config.model().num_global_experts(), per = r.experts_per_rank, ep = r.mesh->size(Axis::kEp), etp = r.mesh->size(Axis::kEtp), edp = r.mesh->size(Axis::kEdp);
  const auto range = [&](int64_t i) {
    const int64_t first = i * per, last = std::min(E, first + per) - 1;
    return first == last ? absl::StrCat(first) : absl::StrCat(first, "-", last);
  };
  absl::StrAppend(out, "experts    ", per, " of the ", E, " of every MoE layer on each rank (mesh.ep ", ep, ")");
  if (ep > 1) absl::StrAppend(out, ": member 0 of an ep group has ", range(0), ", 1 has ", range(1), ep > 2 ? absl::StrCat(", .. ", ep - 1, " has ", range(ep - 1)) : "");
  absl::StrAppend(out, "\n           each ", etp > 1 ? absl::StrCat("cut into ", etp, " parts (mesh.etp), so a rank holds 1/", etp, " of it") : std::string("whole (mesh.etp 1: mesh.tp does not cut experts)"), "; ", edp,
                  edp == 1 ? " copy" : " copies", " of each (edp)\n");
}

void AppendStages(const PlanReport& r, std::string* out) {
  absl::StrAppend(out, "each rank  parameters by kind; bytes of weights, gradients, optimizer, activations at the peak (forwards kept), in all\n");
  std::vector<std::vector<std::string>> rows = {{"stage", "ranks", "layers", "dense", "replic.", "expert", "weights", "grads", "optim.", "activ.", "kept", "peak"}};
  const int64_t P = static_cast<int64_t>(r.stages.size()), per = r.mesh->world_size() / P;
  for (int64_t s = 0; s < P; ++s) {
    if (P > kMostStages && s >= kMostStages - 1 && s < P - 1) continue;
    const StagePlan& stage = r.stages[s];
    const auto& p = stage.parameters;
    const auto& m = stage.memory;
    rows.push_back({absl::StrCat(s), per == 1 ? absl::StrCat(s) : absl::StrCat(s * per, "-", (s + 1) * per - 1), LayersOf(stage), Count(static_cast<double>(p.dense)), Count(static_cast<double>(p.replicated)), Count(static_cast<double>(p.expert)),
                    Bytes(m.weights), Bytes(m.gradients), Bytes(m.optimizer), Bytes(m.activations), absl::StrCat(m.micro_batches), Bytes(m.peak())});
    if (P > kMostStages && s == kMostStages - 2) rows.push_back(std::vector<std::string>(12, ".."));
  }
  std::vector<size_t> width(rows[0].size());
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string pad(width[i] - row[i].size(), ' ');
      absl::StrAppend(&line, "  ", i == 2 ? row[i] + pad : pad + row[i]);
    }
    absl::StrAppend(out, line, "\n");
  }
}

void AppendSchedule(const PlanReport& r, std::string* out) {
  const ScheduleShape& s = r.schedule;
  absl::StrAppend(out, "schedule   ", Name(s.kind), ", ", s.stages, s.stages == 1 ? " stage" : " stages", s.virtual_stages > 1 ? absl::StrCat(" of ", s.virtual_stages, " virtual stages") : "", ", ", s.micro_batches,
                  s.micro_batches == 1 ? " micro-batch of " : " micro-batches of ", absl::StrFormat("%.4g", r.micro.sequences), r.micro.sequences == 1 ? " sequence x " : " sequences x ", static_cast<int64_t>(r.micro.seq_len), " tokens\n");
  if (r.routed_first) absl::StrAppend(out, "           the balancing loss is that of the whole batch: all micro-batches are routed once beforehand, the price of gate.aux_loss with this schedule\n");
  absl::StrAppend(out, TextPicture(r.programs, r.timeline));
  if (s.stages > 1) absl::StrAppend(out, absl::StrFormat("bubble     %.1f%% of the pipeline's time by the formula for equal stages, %.1f%% with these stages\n", 100 * r.ideal_bubble, 100 * r.timeline.bubble));
}

void AppendCosts(const PlanReport& r, std::string* out) {
  if (!r.traffic.empty()) absl::StrAppend(out, "traffic    in a step: sent by a rank of the busiest stage, by all ranks, time on its way\n");
  for (const AxisTraffic& a : r.traffic) absl::StrAppend(out, absl::StrFormat("  %-8s %12s %12s %12s\n", Name(a.group), Bytes(a.rank_bytes), Bytes(a.total_bytes), Seconds(a.rank_seconds)));
  const double tokens = static_cast<double>(r.config.train().global_batch() * r.config.train().seq_len());
  size_t slowest = 0;
  for (size_t s = 0; s < r.stages.size(); ++s)
    if (r.stages[s].compute + r.stages[s].communication > r.stages[slowest].compute + r.stages[slowest].communication) slowest = s;
  const StagePlan& s = r.stages[slowest];
  absl::StrAppend(out, "step       ", Seconds(r.timeline.seconds), " predicted, ", Count(tokens / r.timeline.seconds), " tokens/s; stage ", slowest, ": computing ", Seconds(s.compute), ", communicating ", Seconds(s.communication), ", waiting ",
                  Seconds(s.idle), "\n           machine ", r.machine.source, "\n");
  if (r.imbalance != 1) absl::StrAppend(out, absl::StrFormat("           routing: %.3g times as many tokens to the busiest rank of an expert-parallel group as to its ranks on average\n", r.imbalance));
}

}  // namespace

std::string PlanText(const PlanReport& r) {
  std::string out;
  AppendModel(r, &out);
  AppendMesh(r, &out);
  AppendExperts(r, &out);
  AppendStages(r, &out);
  AppendSchedule(r, &out);
  AppendCosts(r, &out);
  for (const std::string& w : r.warnings) absl::StrAppend(&out, "warning    ", w, "\n");
  if (!r.seeded_mistake.empty()) absl::StrAppend(&out, "mistake    ", r.seeded_mistake, " was put into the programs\n");
  absl::StrAppend(&out, "verdict    ", r.verdict.text, r.verdict.text.empty() || r.verdict.text.back() != '\n' ? "\n" : "");
  return out;
}

std::string PlanSvg(const PlanReport& r) {
  return SvgPicture(r.programs, r.timeline, absl::StrCat(Name(r.schedule.kind), ", ", r.schedule.stages, " stages, ", r.schedule.micro_batches, " micro-batches, ", r.mesh->world_size(), " ranks: ", Seconds(r.timeline.seconds), " predicted"));
}

}  // namespace moe
