// What the writer and the reader of safetensors files agree on.
#ifndef MOE_CORE_CHECKPOINT_SAFETENSORS_LAYOUT_H_
#define MOE_CORE_CHECKPOINT_SAFETENSORS_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

namespace moe {

constexpr int64_t kLargestSafetensorsHeader = int64_t{100} << 20;   // the limit of the format's own implementation

// Bytes of a tensor; -1: its shape is nonsense or its size beyond 64 bits.
inline int64_t SafetensorsBytes(const std::vector<int64_t>& shape, int64_t element_size) {
  int64_t n = element_size;
  bool overflow = false;
  for (int64_t d : shape) {
    if (d < 0) return -1;
    overflow |= __builtin_mul_overflow(n, d, &n);
    if (d == 0) return 0;
  }
  return overflow ? -1 : n;
}

}  // namespace moe
#endif  // MOE_CORE_CHECKPOINT_SAFETENSORS_LAYOUT_H_
