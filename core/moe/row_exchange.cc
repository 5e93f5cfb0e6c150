#include "core/moe/row_exchange.h"

#include <numeric>
#include <vector>

namespace moe {
namespace {

int64_t RowBytes(In rows) {
  int64_t bytes = SizeOf(rows.dtype());
  for (int d = 1; d < rows.rank(); ++d) bytes *= rows.dim(d);
  return bytes;
}

absl::Status CheckRows(Communicator* group, In local, In all, absl::Span<const int64_t> rows_of_rank, const std::string& what) {
  const size_t ranks = group ? group->size() : 1, self = group ? group->rank() : 0;
  if (rows_of_rank.size() != ranks) return Internal(what, ": rows of ", rows_of_rank.size(), " ranks in a group of ", ranks);
  const int64_t total = std::accumulate(rows_of_rank.begin(), rows_of_rank.end(), int64_t{0});
  if (!local.contiguous() || !all.contiguous() || local.dtype() != all.dtype() || RowBytes(local) != RowBytes(all) || local.dim(0) != rows_of_rank[self] || all.dim(0) != total)
    return Internal(what, ": ", local.DebugString(), " of this rank and ", all.DebugString(), " of all do not fit ", rows_of_rank[self], " rows of ", total);
  return absl::OkStatus();
}

// Every rank's rows as a block of `all`, and the same block of `self` for every rank.
struct Blocks {
  Blocks(absl::Span<const int64_t> rows_of_rank, int64_t self_rows, int64_t row_bytes) : self_bytes(rows_of_rank.size(), self_rows * row_bytes) {
    int64_t at = 0;
    for (int64_t rows : rows_of_rank) {
      bytes.push_back(rows * row_bytes);
      offsets.push_back(at);
      at += bytes.back();
    }
  }
  std::vector<int64_t> bytes, offsets, self_bytes;
};

}  // namespace

absl::Status GatherRows(Device* device, Communicator* group, In local, absl::Span<const int64_t> rows_of_rank, Out all, const std::string& what) {
  MOE_RETURN_IF_ERROR(CheckRows(group, local, all, rows_of_rank, what));
  if (group == nullptr || group->size() == 1) return device->Copy(local, all);
  const Blocks blocks(rows_of_rank, local.dim(0), RowBytes(local));
  const std::vector<int64_t> begin(rows_of_rank.size(), 0);
  AllToAllV a;
  a.send = local.data();
  a.send_bytes = blocks.self_bytes;
  a.send_offsets = begin;
  a.recv = all.data();
  a.recv_bytes = blocks.bytes;
  a.recv_offsets = blocks.offsets;
  a.counts_agreed = true;
  return Annotate(RunAllToAllV(group->For(what), a), what);
}

absl::Status ReduceRows(Device* device, Arena* arena, Communicator* group, In partial, absl::Span<const int64_t> rows_of_rank, Out local, bool accumulate, const std::string& what) {
  MOE_RETURN_IF_ERROR(CheckRows(group, local, partial, rows_of_rank, what));
  if (group == nullptr || group->size() == 1) return accumulate ? device->Axpy(1, partial, local) : device->Copy(partial, local);
  const int64_t n = local.dim(0), ranks = group->size();
  const Arena::Mark mark = arena->Position();
  std::vector<int64_t> shape = local.shape();
  shape[0] = ranks * n;
  MOE_ASSIGN_OR_RETURN(const TensorView arrived, arena->Make(local.dtype(), shape));
  const Blocks blocks(rows_of_rank, n, RowBytes(local));
  std::vector<int64_t> begin;
  for (int64_t r = 0; r < ranks; ++r) begin.push_back(r * blocks.self_bytes[r]);
  AllToAllV a;
  a.send = partial.data();
  a.send_bytes = blocks.bytes;
  a.send_offsets = blocks.offsets;
  a.recv = arrived.data();
  a.recv_bytes = blocks.self_bytes;
  a.recv_offsets = begin;
  a.counts_agreed = true;
  MOE_RETURN_IF_ERROR(Annotate(RunAllToAllV(group->For(what), a), what));
  // Summed before it is added to what is there: the partial results belong together.
  const TensorView sum = accumulate ? arrived.Rows(0, n) : local;
  if (!accumulate) MOE_RETURN_IF_ERROR(device->Copy(arrived.Rows(0, n), sum));
  for (int64_t r = 1; r < ranks; ++r) MOE_RETURN_IF_ERROR(device->Axpy(1, arrived.Rows(r * n, n), sum));
  if (accumulate) MOE_RETURN_IF_ERROR(device->Axpy(1, sum, local));
  arena->Rewind(mark);
  return absl::OkStatus();
}

}  // namespace moe
