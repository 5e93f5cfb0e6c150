// Expert tensor parallelism of one layer call: every rank of the group holds a share of the inner width of the same experts and
// brings rows of its own tokens. All compute all rows; each gets the sum of the partial outputs of its rows back.
//
// Made once per call, used by forward and, for gradients, by backward: the transpose of gathering is reducing.
#ifndef MOE_CORE_MOE_ETP_EXCHANGE_H_
#define MOE_CORE_MOE_ETP_EXCHANGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/comm/communicator.h"
#include "core/device/arena.h"

namespace moe {

class EtpExchange {
 public:
  // Rows offsets[i] .. offsets[i+1] of this rank are local expert i's, `experts` of them on every rank. Collective over `etp`,
  // which has more than one rank. `mine`: how this rank fares; when one has failed (its offsets do not matter), all get that
  // rank's error. Indices live in the arena; `name` is the layer's, for messages.
  static absl::StatusOr<EtpExchange> Make(Arena* arena, Communicator* etp, int64_t experts, absl::Span<const int64_t> offsets, const absl::Status& mine, const std::string& name);

  int64_t num_rows() const { return offsets_.back(); }               // U: of all ranks
  const std::vector<int64_t>& offsets() const { return offsets_; }   // of each local expert in them
  // Rows of all ranks, in order of (expert, rank, row there).
  absl::Status Gather(Device* device, Arena* arena, In rows_RD, Out rows_UD) const;
  // The sums, in rank order, of all ranks' partial results for this rank's rows.
  absl::Status Reduce(Device* device, Arena* arena, In partial_UD, Out rows_RD) const;

 private:
  Communicator* etp_ = nullptr;
  std::string name_;
  std::vector<int64_t> rows_of_rank_, offsets_;
  TensorView expert_order_, rank_order_;   // row of (rank, expert, row there) that is row i of (expert, rank, row), and back
};

}  // namespace moe
#endif  // MOE_CORE_MOE_ETP_EXCHANGE_H_
