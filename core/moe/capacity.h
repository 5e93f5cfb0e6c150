// Capacity: how many routes an expert takes, and which ones an overfull expert drops.
//
// C = min(max(ceil(T K / E * capacity_factor), min_capacity), T), T valid tokens (arXiv 2006.16668, 2101.03961).
//  * scope rank: every rank drops among its own tokens; T is its own, and C the largest of all ranks' values.
//  * scope global: as if all tokens were on one rank; the result does not depend on the layout.
//  * policy position: all first choices in token order, then all second choices ...; what comes after C is dropped.
//  * policy probability: an expert keeps the C routes with the largest scores, ties to the earlier token.
#ifndef MOE_CORE_MOE_CAPACITY_H_
#define MOE_CORE_MOE_CAPACITY_H_

#include <cstdint>
#include <vector>

#include "core/comm/communicator.h"
#include "core/config/config.pb.h"

namespace moe {

struct CapacityResult {
  int64_t capacity = 0;   // C
  int64_t dropped = 0;    // routes of this rank that were dropped
};

// Sets dropped entries of ids_TK to -1. `scores_TK` are the chosen scores before renormalisation. Collective over `batch`
// (all ranks that split the batch; null: one rank). config.capacity_factor must be set.
absl::StatusOr<CapacityResult> ApplyCapacity(const config::GateConfig& config, int64_t num_global_experts, int64_t top_k, int64_t num_valid_tokens,
                                             absl::Span<const double> scores_TK, Communicator* batch, std::vector<int32_t>* ids_TK);

}  // namespace moe
#endif  // MOE_CORE_MOE_CAPACITY_H_
