// The vector kernels for avx512; this file alone is compiled with the compiler's flags for it.
#include <stdint.h>
#include <immintrin.h>

#include "core/device/cpu/kernels.h"

#define MOE_LANES 16

namespace moe {
namespace avx512 {
#include "core/device/cpu/simd/all.inc"
}  // namespace avx512

const Kernels& Avx512Kernels() { return avx512::kKernels; }

}  // namespace moe
