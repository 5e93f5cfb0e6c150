#include "core/device/cpu/kernels.h"

#include "core/device/cpu/isa.h"

namespace moe {

const Kernels& GenericKernels();
const Kernels& Avx2Kernels();
const Kernels& Avx512Kernels();

const Kernels& KernelsOf(Isa isa) {
  switch (isa) {
    case Isa::kAvx512: return Avx512Kernels();
    case Isa::kAvx2: return Avx2Kernels();
    case Isa::kGeneric: break;
  }
  return GenericKernels();
}

}  // namespace moe
