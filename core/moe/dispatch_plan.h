// Where every route goes: made once per layer call from the expert ids, saved by forward, reused by combine and by
// backward (the transpose of dispatch is combine).
//
// Rows are sent in order (destination rank, expert slot there, token); what arrives from source s is in order (slot,
// token of s). The experts want (slot, source, token): `expert_order` permutes arrived rows into it.
#ifndef MOE_CORE_MOE_DISPATCH_PLAN_H_
#define MOE_CORE_MOE_DISPATCH_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "core/comm/communicator.h"
#include "core/moe/partition.h"

namespace moe {

class DispatchPlan {
 public:
  // ids_TK: T*K expert ids (-1: no route). Collective over `ep` (null or size 1: nothing is exchanged), whose size must
  // equal placement.ep(). Any T >= 0 on each rank. INVALID_ARGUMENT on all ranks when they disagree on the exchange.
  static absl::StatusOr<DispatchPlan> Make(absl::Span<const int32_t> ids_TK, int64_t top_k, const Placement& placement, Communicator* ep,
                                           absl::Status mine = absl::OkStatus());

  int64_t num_tokens() const { return static_cast<int64_t>(pos_TK_.size()) / top_k_; }
  int64_t num_sent() const { return static_cast<int64_t>(token_N_.size()); }          // N rows leave
  int64_t num_received() const { return offsets_.back(); }                            // R rows arrive
  int64_t num_local_experts() const { return static_cast<int64_t>(offsets_.size()) - 1; }

  const std::vector<int32_t>& token_N() const { return token_N_; }   // token of each sent row
  const std::vector<int32_t>& pos_TK() const { return pos_TK_; }     // sent row of each route, -1: none
  const std::vector<int64_t>& send_rows() const { return send_rows_; }   // per rank of the group
  const std::vector<int64_t>& recv_rows() const { return recv_rows_; }
  // expert_order[i] = arrived row that is row i of the experts' input; arrival_order is its inverse. Empty when it is
  // the identity (one rank).
  const std::vector<int32_t>& expert_order() const { return expert_order_; }
  const std::vector<int32_t>& arrival_order() const { return arrival_order_; }
  const std::vector<int64_t>& offsets() const { return offsets_; }   // e + 1: rows of each local expert
  // counts[s * E + g]: rows that rank s of the group sends to global expert g. Agreed by all ranks.
  const std::vector<int64_t>& counts() const { return counts_; }

 private:
  int64_t top_k_ = 1;
  std::vector<int32_t> token_N_, pos_TK_, expert_order_, arrival_order_;
  std::vector<int64_t> send_rows_, recv_rows_, offsets_, counts_;
};

}  // namespace moe
#endif  // MOE_CORE_MOE_DISPATCH_PLAN_H_
