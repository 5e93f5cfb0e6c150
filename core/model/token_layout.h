// Where the tokens of a micro-batch lie.
//
// Context parallelism cuts each sequence into 2 cp chunks; rank i has chunks i and 2 cp - 1 - i, so that all ranks have the
// same work under a causal mask (the balanced split of Llama 3's report, arXiv 2407.21783, section 3.3.2). Its rows run
// [half, sequence, position in the chunk]. Sequences whose length 2 cp does not divide are padded at the end; padding has no
// label and reaches no router. Tensor parallelism cuts those rows into shares of consecutive rows, which is what a rank holds
// between blocks (sequence parallelism, arXiv 2205.05198).
#ifndef MOE_CORE_MODEL_TOKEN_LAYOUT_H_
#define MOE_CORE_MODEL_TOKEN_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "core/device/arena.h"
#include "core/model/parallel.h"
#include "core/moe/module_context.h"

namespace moe {

// Sequences of a data-parallel rank: ids and labels [batch, seq], labels[b,s] = token after ids[b,s], negative = ignored. The
// same on all ranks that work on these sequences together (tp, cp, pp).
struct Batch {
  const int32_t* ids = nullptr;
  const int32_t* labels = nullptr;   // null: none
  int64_t batch = 0, seq = 0;
  int64_t first_sample = 0;          // global index of the first sequence
};

class TokenLayout {
 public:
  TokenLayout() = default;
  TokenLayout(const Batch& b, const Parallel& ranks);

  int64_t batch() const { return batch_; }
  int64_t seq() const { return padded_; }             // with padding
  int64_t halves() const { return cp_ > 1 ? 2 : 1; }
  int64_t chunk() const { return chunk_; }            // positions per half
  int64_t cp() const { return cp_; }
  // First position of a half of this rank.
  int64_t half_begin(int64_t half) const { return ChunkOf(cp_rank_, half) * chunk_; }
  // Rows of this rank's part of the sequences, of which it has the share rows share_begin .. + share_rows between blocks.
  int64_t rows() const { return rows_; }
  int64_t share_rows() const { return tp_rows_[tp_rank_]; }
  int64_t share_begin() const { return share_begin_; }
  const std::vector<int64_t>& tp_rows() const { return tp_rows_; }   // share_rows of each rank of the tensor-parallel group
  const std::vector<int64_t>& cp_rows() const { return cp_rows_; }   // rows of each rank of the context-parallel group: all equal

  // Of rows(), on the host: -1 is no label.
  const std::vector<int32_t>& ids() const { return ids_; }
  const std::vector<int32_t>& labels() const { return labels_; }
  const std::vector<int32_t>& positions() const { return positions_; }
  // Of the share: 1 for tokens, 0 for padding; empty without padding.
  const std::vector<uint8_t>& valid() const { return valid_; }
  const std::vector<TokenRun>& runs() const { return runs_; }
  int64_t first_token() const { return runs_.empty() ? 0 : runs_.front().first_token; }

  // Row of [cp rank, its rows] for each of [sequence, position], and the inverse: what an all-gather of all parts is sorted by.
  std::vector<int32_t> SequenceOrder() const;
  std::vector<int32_t> PartOrder() const;
  // Row (of rank `cp_rank`'s part) and sequence position of everything there, without padding: (row, sequence, position).
  struct Place { int64_t row, sequence, position; };
  std::vector<Place> PlacesOf(int64_t cp_rank) const;

 private:
  int64_t ChunkOf(int64_t cp_rank, int64_t half) const { return half == 0 ? cp_rank : 2 * cp_ - 1 - cp_rank; }

  int64_t batch_ = 0, seq_ = 0, padded_ = 0, chunk_ = 0, rows_ = 0, share_begin_ = 0;
  int64_t cp_ = 1, cp_rank_ = 0, tp_rank_ = 0;
  std::vector<int64_t> tp_rows_ = {0}, cp_rows_ = {0};
  std::vector<int32_t> ids_, labels_, positions_;
  std::vector<uint8_t> valid_;
  std::vector<TokenRun> runs_;
};

// What the blocks of a pass need of it on the device.
struct DeviceLayout {
  TensorView positions_T;                    // [rows]
  TensorView sequence_order, part_order;     // [batch * seq], with context parallelism
  TensorView valid_T;                        // [share_rows], with padding
};
absl::StatusOr<DeviceLayout> ToDevice(Arena* arena, const TokenLayout& layout);

}  // namespace moe
#endif  // MOE_CORE_MODEL_TOKEN_LAYOUT_H_
