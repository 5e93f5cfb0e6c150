// A tensor of any rank seen as rows of its last dimension, which is contiguous in every operation of Device; the
// outer dimensions may be padded. Lets an operation be written as two loops: over rows, over a row.
#ifndef MOE_CORE_DEVICE_ROWS_H_
#define MOE_CORE_DEVICE_ROWS_H_

#include "core/base/tensor.h"

namespace moe {

inline int64_t RowLength(const TensorView& v) { return v.defined() ? v.dim(v.rank() - 1) : 0; }
inline int64_t NumRows(const TensorView& v) {
  int64_t n = v.defined() ? 1 : 0;
  for (int d = 0; d + 1 < v.rank(); ++d) n *= v.dim(d);
  return n;
}
// Row number r in row-major order of the outer dimensions.
template <typename T>
T* Row(const TensorView& v, int64_t r) {
  int64_t at = 0;
  for (int d = v.rank() - 2; d > 0; --d) {
    at += r % v.dim(d) * v.stride(d);
    r /= v.dim(d);
  }
  if (v.rank() > 1) at += r * v.stride(0);
  return v.as<T>() + at;
}

}  // namespace moe
#endif  // MOE_CORE_DEVICE_ROWS_H_
