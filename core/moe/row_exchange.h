// Rows that a group shares for a part of its work: gathered from all ranks, and partial results reduced back to their owners.
// Expert tensor parallelism and tensor parallelism are built on it.
//
// Both are one all-to-all-v, because the ranks' numbers of rows may differ, and tensors are contiguous. A null group or a group of
// one: the same result without communication.
#ifndef MOE_CORE_MOE_ROW_EXCHANGE_H_
#define MOE_CORE_MOE_ROW_EXCHANGE_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "core/comm/communicator.h"
#include "core/device/arena.h"

namespace moe {

// all_ND = the local_nD of all ranks, in rank order, for any dtype. Collective; rows_of_rank is the same on all ranks.
// `what` names the exchange in errors.
absl::Status GatherRows(Device* device, Communicator* group, In local_nD, absl::Span<const int64_t> rows_of_rank, Out all_ND, const std::string& what);

// local_nD (+)= the sum of all ranks' partial results for this rank's rows, rank 0's first: the same bits from run to run.
// Collective, the transpose of GatherRows. Scratch comes from the arena, which is rewound.
absl::Status ReduceRows(Device* device, Arena* arena, Communicator* group, In partial_ND, absl::Span<const int64_t> rows_of_rank, Out local_nD, bool accumulate, const std::string& what);

}  // namespace moe
#endif  // MOE_CORE_MOE_ROW_EXCHANGE_H_
