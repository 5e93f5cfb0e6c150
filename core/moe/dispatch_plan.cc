#include "core/moe/dispatch_plan.h"

#include <algorithm>
#include <numeric>

#include "core/comm/agree.h"

namespace moe {

absl::StatusOr<DispatchPlan> DispatchPlan::Make(absl::Span<const int32_t> ids, int64_t top_k, const Placement& placement, Communicator* ep, absl::Status status) {
  const int64_t num_experts = placement.num_global_experts(), ranks = placement.ep();
  const int64_t self = ep ? ep->rank() : 0;
  if (ranks != (ep ? ep->size() : 1))
    return InvalidArgument("dispatch: the placement is for ", ranks, " ranks, the expert-parallel group has ", ep ? ep->size() : 1);

  DispatchPlan plan;
  plan.top_k_ = top_k;
  // Place of each expert in the order of sending: (owner, slot).
  std::vector<int64_t> order_of(num_experts);
  {
    int64_t at = 0;
    for (int64_t r = 0; r < ranks; ++r)
      for (int64_t g : placement.experts_of(r)) order_of[g] = at++;
  }
  std::vector<int64_t> mine(num_experts, 0), start(num_experts + 1, 0);
  for (int32_t id : ids) {
    if (id < -1 || id >= num_experts) {
      if (status.ok()) status = InvalidArgument("dispatch: expert id ", id, " is outside [0, ", num_experts, ")");
      break;
    }
    if (id >= 0) ++mine[id];
  }
  if (ranks == 1) MOE_RETURN_IF_ERROR(status);
  plan.counts_ = mine;
  if (ranks > 1) {
    // The counts of all ranks, each row led by how its rank fares.
    std::vector<int64_t> row = {status.ok() ? 0 : 1}, rows(ranks * (num_experts + 1));
    row.insert(row.end(), mine.begin(), mine.end());
    MOE_RETURN_IF_ERROR(AllGather(ep->For("counts"), row.data(), static_cast<int64_t>(row.size() * sizeof(int64_t)), rows.data()));
    bool failed = false;
    plan.counts_.clear();
    for (int64_t r = 0; r < ranks; ++r) {
      const auto begin = rows.begin() + r * (num_experts + 1);
      failed = failed || *begin != 0;
      plan.counts_.insert(plan.counts_.end(), begin + 1, begin + 1 + num_experts);
    }
    if (failed) return Agree(ep, status);
  }

  for (int64_t g = 0; g < num_experts; ++g) start[order_of[g] + 1] = mine[g];
  std::partial_sum(start.begin(), start.end(), start.begin());
  plan.token_N_.resize(start.back());
  plan.pos_TK_.resize(ids.size());
  std::vector<int64_t> next(start.begin(), start.end() - 1);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0) { plan.pos_TK_[i] = -1; continue; }
    const int64_t row = next[order_of[ids[i]]]++;
    plan.pos_TK_[i] = static_cast<int32_t>(row);
    plan.token_N_[row] = static_cast<int32_t>(i / top_k);
  }
  plan.send_rows_.assign(ranks, 0);
  for (int64_t g = 0; g < num_experts; ++g) plan.send_rows_[placement.owner(g)] += mine[g];

  const std::vector<int64_t>& local = placement.experts_of(self);
  const int64_t e = static_cast<int64_t>(local.size());
  plan.recv_rows_.assign(ranks, 0);
  plan.offsets_.assign(e + 1, 0);
  for (int64_t s = 0; s < ranks; ++s) {
    for (int64_t i = 0; i < e; ++i) {
      const int64_t n = plan.counts_[s * num_experts + local[i]];
      plan.recv_rows_[s] += n;
      plan.offsets_[i + 1] += n;
    }
  }
  std::partial_sum(plan.offsets_.begin(), plan.offsets_.end(), plan.offsets_.begin());
  if (ranks > 1) {
    plan.expert_order_.resize(plan.num_received());
    plan.arrival_order_.resize(plan.num_received());
    std::vector<int64_t> at(plan.offsets_.begin(), plan.offsets_.end() - 1);
    int32_t arrived = 0;
    for (int64_t s = 0; s < ranks; ++s) {
      for (int64_t i = 0; i < e; ++i) {
        for (int64_t n = plan.counts_[s * num_experts + local[i]]; n > 0; --n, ++arrived) {
          plan.expert_order_[at[i]] = arrived;
          plan.arrival_order_[arrived] = static_cast<int32_t>(at[i]++);
        }
      }
    }
  }
  return plan;
}

}  // namespace moe
