#include "core/device/arena.h"

#include <algorithm>

namespace moe {
namespace {
constexpr int64_t kAlign = 64;
constexpr int64_t kSmallestChunk = int64_t{1} << 20;
}  // namespace

absl::StatusOr<TensorView> Arena::Make(DType dtype, const std::vector<int64_t>& shape) {
  int64_t n = SizeOf(dtype);
  for (int64_t d : shape) n *= d;
  n = (n + kAlign - 1) / kAlign * kAlign;
  while (chunk_ < chunks_.size() && used_ + n > chunks_[chunk_].bytes()) {
    ++chunk_;
    used_ = 0;
  }
  if (chunk_ == chunks_.size()) {
    MOE_ASSIGN_OR_RETURN(Buffer b, Buffer::Make(device_, std::max({n, kSmallestChunk, capacity() / 4})));
    chunks_.push_back(std::move(b));
    used_ = 0;
  }
  void* p = static_cast<char*>(chunks_[chunk_].data()) + used_;
  used_ += n;
  return TensorView(p, dtype, shape);
}

absl::Status Arena::Reset() {
  if (chunks_.size() > 1) {
    // A tenth more than was needed, so that token counts that vary from step to step rarely need another round.
    const int64_t need = capacity() + capacity() / 10;
    chunks_.clear();
    MOE_ASSIGN_OR_RETURN(Buffer b, Buffer::Make(device_, need));
    chunks_.push_back(std::move(b));
  }
  chunk_ = 0;
  used_ = 0;
  return absl::OkStatus();
}

int64_t Arena::capacity() const {
  int64_t n = 0;
  for (const Buffer& b : chunks_) n += b.bytes();
  return n;
}

}  // namespace moe
