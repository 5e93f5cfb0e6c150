// Blocks of tensors: boxes of indices, half open. What a rank holds of a tensor is one, what a file stores is one, and loading
// copies the elements that two of them have in common.
#ifndef MOE_CORE_CHECKPOINT_BLOCK_H_
#define MOE_CORE_CHECKPOINT_BLOCK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "core/base/status.h"

namespace moe {

struct Block {
  std::vector<int64_t> begin, shape;   // one number per dimension
  int64_t end(size_t d) const { return begin[d] + shape[d]; }
  bool empty() const;
  std::string DebugString() const;     // "[0:4,8:16]", as Python would slice it
};

inline bool operator==(const Block& a, const Block& b) { return a.begin == b.begin && a.shape == b.shape; }
inline bool operator!=(const Block& a, const Block& b) { return !(a == b); }

// All of a tensor of that shape.
Block WholeBlock(const std::vector<int64_t>& shape);
// Whether the block is well formed and lies inside a tensor of that shape; never overflows.
bool LiesInside(const Block& block, const std::vector<int64_t>& shape);
// Elements of both; nothing: they share none. Blocks of one tensor.
absl::optional<Block> Intersection(const Block& a, const Block& b);

// A region that not exactly one block covers.
struct TilingFault {
  Block region;
  std::vector<size_t> blocks;   // indices of those that cover it, ascending; empty: it is missing
};
// Whether every element of a tensor of `shape` is in exactly one block; if not, the first region that is not. Every block
// lies inside; empty ones cover nothing.
absl::optional<TilingFault> FindTilingFault(const std::vector<int64_t>& shape, const std::vector<Block>& blocks);

// Reads `bytes` bytes of the stored block from `offset`.
using ReadRange = std::function<absl::Status(int64_t offset, void* out, int64_t bytes)>;
// Copies what `stored` and `wanted` have in common through `read` to `out`, where `wanted` stands contiguously, row-major as
// everything here. Reads only what is needed and small gaps between, with little memory of its own.
absl::Status CopyCommon(const Block& stored, const Block& wanted, int64_t element_size, const ReadRange& read, char* out);

}  // namespace moe
#endif  // MOE_CORE_CHECKPOINT_BLOCK_H_
