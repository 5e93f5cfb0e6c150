// out = source(0) op source(1) op ... op source(n-1), the order that every reduction here keeps.
#ifndef MOE_TRANSPORT_COLLECTIVE_RANK_ORDER_H_
#define MOE_TRANSPORT_COLLECTIVE_RANK_ORDER_H_

#include <algorithm>
#include <cstring>

#include "absl/functional/function_ref.h"
#include "transport/reduce.h"

namespace moe {

// `out` may be one of the sources: pieces are summed on the stack, which also keeps them in the cache.
inline void ReduceInRankOrder(void* out, int n, absl::FunctionRef<const void*(int)> source, int64_t count, DType dtype, ReduceOp op) {
  constexpr int64_t kPiece = 8192;
  alignas(64) char sum[kPiece];
  const int64_t bytes = count * SizeOf(dtype);
  for (int64_t at = 0; at < bytes; at += kPiece) {
    const int64_t piece = std::min(kPiece, bytes - at);
    std::memcpy(sum, static_cast<const char*>(source(0)) + at, piece);
    for (int i = 1; i < n; ++i) ReduceInto(sum, static_cast<const char*>(source(i)) + at, piece / SizeOf(dtype), dtype, op);
    std::memcpy(static_cast<char*>(out) + at, sum, piece);
  }
}

}  // namespace moe
#endif  // MOE_TRANSPORT_COLLECTIVE_RANK_ORDER_H_
