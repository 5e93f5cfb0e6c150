#include "core/moe/etp_exchange.h"

#include <numeric>

#include "core/comm/agree.h"
#include "core/device/host_copy.h"
#include "core/moe/row_exchange.h"

namespace moe {

absl::StatusOr<EtpExchange> EtpExchange::Make(Arena* arena, Communicator* etp, int64_t e, absl::Span<const int64_t> offsets, const absl::Status& mine, const std::string& name) {
  const int64_t ranks = etp->size();
  // The counts of all ranks, each led by how its rank fares.
  std::vector<int64_t> row(1 + e, 0), rows(ranks * (1 + e));
  row[0] = mine.ok() ? 0 : 1;
  for (int64_t i = 0; mine.ok() && i < e; ++i) row[1 + i] = offsets[i + 1] - offsets[i];
  MOE_RETURN_IF_ERROR(Annotate(AllGather(etp->For("etp counts"), row.data(), static_cast<int64_t>(row.size() * sizeof(int64_t)), rows.data()), name + " (etp counts)"));
  const auto count = [&](int64_t rank, int64_t expert) { return rows[rank * (1 + e) + 1 + expert]; };
  for (int64_t r = 0; r < ranks; ++r)
    if (rows[r * (1 + e)] != 0) return Agree(etp, mine);

  EtpExchange x;
  x.etp_ = etp;
  x.name_ = name;
  x.rows_of_rank_.assign(ranks, 0);
  x.offsets_.assign(e + 1, 0);
  for (int64_t r = 0; r < ranks; ++r) {
    for (int64_t i = 0; i < e; ++i) {
      x.rows_of_rank_[r] += count(r, i);
      x.offsets_[i + 1] += count(r, i);
    }
  }
  std::partial_sum(x.offsets_.begin(), x.offsets_.end(), x.offsets_.begin());
  std::vector<int32_t> expert_order(x.num_rows()), rank_order(x.num_rows());
  std::vector<int64_t> at(x.offsets_.begin(), x.offsets_.end() - 1);
  int32_t gathered = 0;
  for (int64_t r = 0; r < ranks; ++r) {
    for (int64_t i = 0; i < e; ++i) {
      for (int64_t n = count(r, i); n > 0; --n, ++gathered) {
        expert_order[at[i]] = gathered;
        rank_order[gathered] = static_cast<int32_t>(at[i]++);
      }
    }
  }
  MOE_ASSIGN_OR_RETURN(x.expert_order_, ToDevice(arena, DType::kI32, {x.num_rows()}, expert_order.data()));
  MOE_ASSIGN_OR_RETURN(x.rank_order_, ToDevice(arena, DType::kI32, {x.num_rows()}, rank_order.data()));
  return x;
}

absl::Status EtpExchange::Gather(Device* device, Arena* arena, In rows_RD, Out rows_UD) const {
  const Arena::Mark mark = arena->Position();
  MOE_ASSIGN_OR_RETURN(const TensorView by_rank, arena->Make(rows_UD.dtype(), rows_UD.shape()));
  MOE_RETURN_IF_ERROR(Annotate(GatherRows(device, etp_, rows_RD, rows_of_rank_, by_rank, "etp gather"), name_));
  MOE_RETURN_IF_ERROR(device->GatherRows(by_rank, expert_order_, rows_UD));
  arena->Rewind(mark);
  return absl::OkStatus();
}

absl::Status EtpExchange::Reduce(Device* device, Arena* arena, In partial_UD, Out rows_RD) const {
  const Arena::Mark mark = arena->Position();
  MOE_ASSIGN_OR_RETURN(const TensorView by_rank, arena->Make(partial_UD.dtype(), partial_UD.shape()));
  MOE_RETURN_IF_ERROR(device->GatherRows(partial_UD, rank_order_, by_rank));
  MOE_RETURN_IF_ERROR(Annotate(ReduceRows(device, arena, etp_, by_rank, rows_of_rank_, rows_RD, false, "etp reduce"), name_));
  arena->Rewind(mark);
  return absl::OkStatus();
}

}  // namespace moe
