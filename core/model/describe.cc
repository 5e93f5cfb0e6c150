// The table of a model that a run starts with.
#include <algorithm>

#include "core/model/model.h"
#include "nlohmann/json.hpp"

namespace moe {

absl::StatusOr<std::string> Model::Describe() const {
  using Json = nlohmann::ordered_json;
  const int64_t element = SizeOf(store_->dtype());
  const config::ModelConfig& m = config_.model();
  const Parallel& ranks = context_.ranks;
  // Of this rank, and of the model: what each rank answers for, added up.
  int64_t of_rank[2] = {store_->count(ParamKind::kDense) + store_->count(ParamKind::kReplicated), store_->count(ParamKind::kExpert)}, global[2] = {0, 0};
  for (const auto& [param, piece] : pieces_)
    if (param->counted && Owns(param->kind)) global[param->kind == ParamKind::kExpert] += piece->size();
  if (context_.world && context_.world->size() > 1) MOE_RETURN_IF_ERROR(AllReduce(context_.world->For("describe"), global, 2, DType::kI64));
  const int64_t dense = global[0], expert_global = global[1];
  MOE_ASSIGN_OR_RETURN(auto partition, context_.modules->MakePartition(config_.partition()));
  MOE_ASSIGN_OR_RETURN(Placement placement, partition->Place(m.num_global_experts(), ranks.size(GroupKind::kEp)));
  const int64_t local_experts = static_cast<int64_t>(placement.experts_of(ranks.index(GroupKind::kEp)).size());
  int64_t layers_of_rank = 0;
  for (const auto& chunk : chunks_) layers_of_rank += chunk->place().num_layers;
  const int64_t active = num_moe_layers() == 0 ? dense : dense + expert_global / m.num_global_experts() * m.top_k();

  // Activations that one token leaves for backward, in elements; an estimate from the shapes.
  const int64_t D = m.d_model(), head = HeadDim(m), qkv = (m.num_heads() + 2 * m.num_kv_heads()) * head;
  const int64_t in = m.d_hidden() * (config_.expert().kind() == "swiglu" ? 2 : 1), F = m.d_hidden();
  const int64_t per_layer = 5 * D + qkv + m.num_heads() * head + m.top_k() * (3 * D + in + F) + 2 * m.num_global_experts();
  const int64_t share = (config_.train().global_batch() + dp_size() - 1) / dp_size();
  const int64_t sequences = std::min(MicroBatchSize(config_, ranks.stages(), share), share);
  const int64_t micro_batches = sequences > 0 ? (share + sequences - 1) / sequences : 1;
  const int64_t kept = ranks.stages() == 1 ? 1 : std::min(micro_batches, shape_.schedule.kind == ScheduleKind::kGpipe ? micro_batches : ranks.stages());   // micro-batches in memory at a time
  const int64_t tokens = kept * sequences * config_.train().seq_len() / (ranks.cp() * ranks.tp());
  const int64_t activations = tokens * (layers_of_rank * per_layer + 4 * D) * element;

  const int64_t weights = (of_rank[0] + of_rank[1]) * element;
  Json j;
  j["parameters"] = {{"dense", dense}, {"expert_global", expert_global}, {"dense_rank", of_rank[0]}, {"expert_rank", of_rank[1]}, {"global", dense + expert_global},
                     {"rank", of_rank[0] + of_rank[1]}, {"active_per_token", active}};
  j["experts"] = {{"layers", num_moe_layers()}, {"global", m.num_global_experts()}, {"rank", local_experts}, {"top_k", m.top_k()}};
  j["memory_bytes"] = {{"weights", weights}, {"gradients", weights}, {"optimizer", optimizer_->state_bytes()}, {"activations_estimate", activations},
                       {"total_estimate", 2 * weights + optimizer_->state_bytes() + activations}};
  j["data"] = {{"dp_rank", dp_rank()}, {"dp_size", dp_size()}, {"sequences_per_rank", share}, {"sequences_per_micro_batch", sequences}};
  j["mesh"] = {{"world", context_.world ? context_.world->size() : 1}, {"dp", dp_size()}, {"tp", ranks.tp()}, {"cp", ranks.cp()}, {"pp", ranks.stages()},
               {"ep", ranks.size(GroupKind::kEp)}, {"etp", ranks.size(GroupKind::kEtp)}, {"edp", ranks.size(GroupKind::kEdp)}};
  if (ranks.stages() > 1) {
    const int64_t P = ranks.stages(), v = shape_.schedule.virtual_stages;
    Json layers = Json::array();
    for (const auto& chunk : chunks_) layers.push_back({{"first", chunk->place().first_layer}, {"layers", chunk->place().num_layers}});
    j["pipeline"] = {{"kind", Name(shape_.schedule.kind)}, {"stages", P}, {"virtual_stages", v}, {"stage", ranks.stage()}, {"micro_batches", micro_batches}, {"chunks", layers}};
  }
  j["device_bytes"] = {{"now", context_.device->allocated_bytes()}, {"peak", context_.device->peak_allocated_bytes()}};
  return j.dump();
}

}  // namespace moe
