// Rows of logits that are in memory at a time: 16 MiB of float32. The number of blocks is the number of exchanges of a
// vocabulary-parallel cross-entropy, so the plan and the engine take it from here.
#ifndef MOE_CORE_PLAN_LOSS_ROWS_H_
#define MOE_CORE_PLAN_LOSS_ROWS_H_

#include <algorithm>
#include <cstdint>

namespace moe {

inline int64_t LossRows(int64_t vocab, int64_t tp) { return std::max<int64_t>(64, (int64_t{4} << 20) / ((vocab + tp - 1) / tp)); }

}  // namespace moe
#endif  // MOE_CORE_PLAN_LOSS_ROWS_H_
