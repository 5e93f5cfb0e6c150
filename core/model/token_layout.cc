#include "core/model/token_layout.h"

#include "core/device/host_copy.h"

namespace moe {

TokenLayout::TokenLayout(const Batch& b, const Parallel& ranks) : batch_(b.batch), seq_(b.seq), cp_(ranks.cp()), cp_rank_(ranks.cp_rank()), tp_rank_(ranks.tp_rank()) {
  const int64_t pieces = cp_ * halves();
  chunk_ = (seq_ + pieces - 1) / pieces;
  padded_ = chunk_ * pieces;
  rows_ = batch_ * padded_ / cp_;
  cp_rows_.assign(cp_, rows_);
  tp_rows_.clear();
  for (int64_t r = 0; r < ranks.tp(); ++r) tp_rows_.push_back(ShareSize(rows_, ranks.tp(), r));
  share_begin_ = ShareBegin(rows_, ranks.tp(), tp_rank_);
  ids_.resize(rows_);
  labels_.assign(rows_, -1);
  positions_.resize(rows_);
  const int64_t share_end = share_begin_ + share_rows();
  if (padded_ != seq_) valid_.resize(share_rows());
  int64_t row = 0;
  for (int64_t half = 0; half < halves(); ++half) {
    for (int64_t s = 0; s < batch_; ++s) {
      for (int64_t i = 0; i < chunk_; ++i, ++row) {
        const int64_t position = half_begin(half) + i, token = s * seq_ + position;
        const bool real = position < seq_;
        positions_[row] = static_cast<int32_t>(position);
        ids_[row] = real ? b.ids[token] : 0;
        if (real && b.labels != nullptr) labels_[row] = b.labels[token];
        if (row < share_begin_ || row >= share_end) continue;
        if (!valid_.empty()) valid_[row - share_begin_] = real;
        const int64_t global = b.first_sample * seq_ + token;
        if (!runs_.empty() && runs_.back().first_token + runs_.back().rows == global) ++runs_.back().rows;
        else runs_.push_back({1, global});
      }
    }
  }
}

std::vector<TokenLayout::Place> TokenLayout::PlacesOf(int64_t cp_rank) const {
  std::vector<Place> out;
  int64_t row = 0;
  for (int64_t half = 0; half < halves(); ++half)
    for (int64_t s = 0; s < batch_; ++s)
      for (int64_t i = 0; i < chunk_; ++i, ++row)
        if (const int64_t position = ChunkOf(cp_rank, half) * chunk_ + i; position < seq_) out.push_back({row, s, position});
  return out;
}

std::vector<int32_t> TokenLayout::PartOrder() const {
  std::vector<int32_t> out;
  out.reserve(batch_ * padded_);
  for (int64_t rank = 0; rank < cp_; ++rank)
    for (int64_t half = 0; half < halves(); ++half)
      for (int64_t s = 0; s < batch_; ++s)
        for (int64_t i = 0; i < chunk_; ++i) out.push_back(static_cast<int32_t>(s * padded_ + ChunkOf(rank, half) * chunk_ + i));
  return out;
}

std::vector<int32_t> TokenLayout::SequenceOrder() const {
  const std::vector<int32_t> part = PartOrder();
  std::vector<int32_t> out(part.size());
  for (size_t i = 0; i < part.size(); ++i) out[part[i]] = static_cast<int32_t>(i);
  return out;
}

absl::StatusOr<DeviceLayout> ToDevice(Arena* arena, const TokenLayout& l) {
  DeviceLayout d;
  MOE_ASSIGN_OR_RETURN(d.positions_T, ToDevice(arena, DType::kI32, {l.rows()}, l.positions().data()));
  if (l.cp() > 1) {
    const std::vector<int32_t> sequence = l.SequenceOrder(), part = l.PartOrder();
    MOE_ASSIGN_OR_RETURN(d.sequence_order, ToDevice(arena, DType::kI32, {static_cast<int64_t>(sequence.size())}, sequence.data()));
    MOE_ASSIGN_OR_RETURN(d.part_order, ToDevice(arena, DType::kI32, {static_cast<int64_t>(part.size())}, part.data()));
  }
  if (!l.valid().empty()) {
    MOE_ASSIGN_OR_RETURN(d.valid_T, ToDevice(arena, DType::kU8, {l.share_rows()}, l.valid().data()));
  }
  return d;
}

}  // namespace moe
