// The vector kernels for generic; this file alone is compiled with the compiler's flags for it.
#include <stdint.h>


#include "core/device/cpu/kernels.h"

#define MOE_LANES 4

namespace moe {
namespace generic {
#include "core/device/cpu/simd/all.inc"
}  // namespace generic

const Kernels& GenericKernels() { return generic::kKernels; }

}  // namespace moe
