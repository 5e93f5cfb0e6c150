// The vector kernels for avx2; this file alone is compiled with the compiler's flags for it.
#include <stdint.h>
#include <immintrin.h>

#include "core/device/cpu/kernels.h"

#define MOE_LANES 8

namespace moe {
namespace avx2 {
#include "core/device/cpu/simd/all.inc"
}  // namespace avx2

const Kernels& Avx2Kernels() { return avx2::kKernels; }

}  // namespace moe
