// The plan for programs.
#include "core/plan/report/plan_report.h"
#include "nlohmann/json.hpp"

namespace moe {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(const ParameterCounts& p) { return {{"dense", p.dense}, {"replicated", p.replicated}, {"expert", p.expert}, {"total", p.total()}}; }

Json ToJson(const StagePlan& s, int64_t stage, int64_t per) {
  Json chunks = Json::array();
  for (const Chunk& c : s.chunks) chunks.push_back({{"first_layer", c.first_layer}, {"num_layers", c.num_layers}, {"embedding", c.embedding}, {"head", c.head}});
  const RankMemory& m = s.memory;
  return {{"stage", stage}, {"first_rank", stage * per}, {"last_rank", (stage + 1) * per - 1}, {"virtual_stages", chunks}, {"parameters_per_rank", ToJson(s.parameters)},
          {"bytes_per_rank", {{"weights", m.weights}, {"gradients", m.gradients}, {"optimizer", m.optimizer}, {"activations", m.activations}, {"scratch", m.scratch}, {"peak", m.peak()}}},
          {"forwards_kept", m.micro_batches}, {"seconds", {{"computing", s.compute}, {"communicating", s.communication}, {"waiting", s.idle}}}};
}

}  // namespace

std::string PlanJson(const PlanReport& r) {
  const Mesh& mesh = *r.mesh;
  Json j;
  j["ranks"] = mesh.world_size();
  for (Axis a : {Axis::kTp, Axis::kCp, Axis::kDp, Axis::kPp, Axis::kEtp, Axis::kEp, Axis::kEdp}) j["mesh"][Name(a)] = mesh.size(a);
  j["parameters"] = ToJson(r.model.whole);
  j["parameters"]["active_per_token"] = r.model.active_per_token;
  j["experts"] = {{"per_layer", r.config.model().num_global_experts()}, {"all_layers", r.model.routed_experts}, {"per_rank", r.experts_per_rank}, {"parts_of_each", mesh.size(Axis::kEtp)}, {"copies", mesh.size(Axis::kEdp)}};
  j["groups"] = Json::array();
  for (const GroupSummary& g : r.groups) j["groups"].push_back({{"kind", Name(g.kind)}, {"groups", g.groups}, {"ranks", g.size}, {"examples", g.examples}});
  const int64_t P = static_cast<int64_t>(r.stages.size());
  j["stages"] = Json::array();
  for (int64_t s = 0; s < P; ++s) j["stages"].push_back(ToJson(r.stages[s], s, mesh.world_size() / P));
  j["schedule"] = {{"kind", Name(r.schedule.kind)}, {"stages", r.schedule.stages}, {"virtual_stages", r.schedule.virtual_stages}, {"micro_batches", r.schedule.micro_batches},
                   {"sequences_per_micro_batch", r.micro.sequences}, {"tokens_per_sequence", r.config.train().seq_len()}, {"routed_first", r.routed_first}, {"bubble_by_formula", r.ideal_bubble}, {"bubble", r.timeline.bubble}};
  j["traffic"] = Json::array();
  for (const AxisTraffic& a : r.traffic) j["traffic"].push_back({{"group", Name(a.group)}, {"bytes_per_rank", a.rank_bytes}, {"bytes", a.total_bytes}, {"seconds_per_rank", a.rank_seconds}});
  j["machine"] = {{"gflops", r.machine.gflops}, {"memory_gbs", r.machine.memory_gbs}, {"latency_us", r.machine.latency_us}, {"message_us", r.machine.message_us}, {"bandwidth_gbs", r.machine.bandwidth_gbs},
                  {"shared_cores", r.machine.shared_cores}, {"threads", r.machine.threads}, {"source", r.machine.source}};
  j["imbalance"] = r.imbalance;
  j["step_seconds"] = r.timeline.seconds;
  j["tokens_per_second"] = static_cast<double>(r.config.train().global_batch() * r.config.train().seq_len()) / r.timeline.seconds;
  j["warnings"] = r.warnings;
  const Verdict& v = r.verdict;
  j["verdict"] = {{"free", v.free}, {"text", v.text}, {"classes", v.classes}, {"operations", v.operations}};
  if (!r.seeded_mistake.empty()) j["verdict"]["seeded_mistake"] = r.seeded_mistake;
  if (v.first_rank >= 0) j["verdict"]["waiting"] = Json::array({{{"rank", v.first_rank}, {"operation", v.first_operation}}, {{"rank", v.second_rank}, {"operation", v.second_operation}}});
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace moe
