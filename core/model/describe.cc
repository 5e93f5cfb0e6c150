// The table of a model that a run starts with.
#include <algorithm>

#include "core/model/model.h"
#include "nlohmann/json.hpp"

namespace moe {

absl::StatusOr<std::string> Model::Describe() const {
  using Json = nlohmann::ordered_json;
  const int64_t element = SizeOf(store_->dtype());
  const int64_t dense = store_->count(ParamKind::kDense), experts = store_->count(ParamKind::kExpert);
  // Experts of all ranks: each named tensor of this rank's kind exists once per expert.
  const config::ModelConfig& m = config_.model();
  const int64_t ep = context_.ep ? context_.ep->size() : 1;
  int64_t expert_global = experts, local_experts = m.num_global_experts();
  if (ep > 1) {
    MOE_RETURN_IF_ERROR(AllReduce(context_.ep, &expert_global, 1, DType::kI64));
    MOE_ASSIGN_OR_RETURN(auto partition, context_.modules->MakePartition(config_.partition()));
    MOE_ASSIGN_OR_RETURN(Placement placement, partition->Place(m.num_global_experts(), ep));
    local_experts = static_cast<int64_t>(placement.experts_of(context_.ep->rank()).size());
  }
  const int64_t active = num_moe_layers() == 0 ? dense
      : dense + expert_global / m.num_global_experts() * m.top_k();

  // Activations that one token leaves for backward, in elements; an estimate from the shapes.
  const int64_t D = m.d_model(), head = HeadDim(m), qkv = (m.num_heads() + 2 * m.num_kv_heads()) * head;
  const int64_t in = m.d_hidden() * (config_.expert().kind() == "swiglu" ? 2 : 1), F = m.d_hidden();
  const int64_t per_layer = 5 * D + qkv + m.num_heads() * head + m.top_k() * (3 * D + in + F) + 2 * m.num_global_experts();
  const int64_t share = (config_.train().global_batch() + context_.dp_size - 1) / context_.dp_size;
  const int64_t sequences = config_.train().micro_batch() > 0 ? std::min(config_.train().micro_batch(), share) : share;
  const int64_t activations = sequences * config_.train().seq_len() * (m.num_layers() * per_layer + 4 * D) * element;

  const int64_t weights = (dense + experts) * element;
  Json j;
  j["parameters"] = {{"dense", dense}, {"expert_global", expert_global}, {"expert_rank", experts}, {"global", dense + expert_global},
                     {"rank", dense + experts}, {"active_per_token", active}};
  j["experts"] = {{"layers", num_moe_layers()}, {"global", m.num_global_experts()}, {"rank", local_experts}, {"top_k", m.top_k()}};
  j["memory_bytes"] = {{"weights", weights}, {"gradients", weights}, {"optimizer", optimizer_->state_bytes()}, {"activations_estimate", activations},
                       {"total_estimate", 2 * weights + optimizer_->state_bytes() + activations}};
  j["data"] = {{"dp_rank", context_.dp_rank}, {"dp_size", context_.dp_size}, {"sequences_per_rank", share}, {"sequences_per_micro_batch", sequences}};
  j["mesh"] = {{"world", context_.world ? context_.world->size() : 1}, {"dp", context_.dp_size}, {"ep", ep}, {"edp", context_.edp ? context_.edp->size() : 1}};
  j["device_bytes"] = {{"now", context_.device->allocated_bytes()}, {"peak", context_.device->peak_allocated_bytes()}};
  return j.dump();
}

}  // namespace moe
