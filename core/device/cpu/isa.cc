#include "core/device/cpu/isa.h"

namespace moe {

const char* Name(Isa isa) {
  switch (isa) {
    case Isa::kGeneric: return "generic";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
  }
  return "?";
}

std::vector<Isa> AvailableIsas() {
  std::vector<Isa> isas = {Isa::kGeneric};
#if defined(__x86_64__)
  // __builtin_cpu_supports also asks the operating system (XGETBV) whether it saves the wide registers.
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    isas.push_back(Isa::kAvx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl")) {
      isas.push_back(Isa::kAvx512);
    }
  }
#endif
  return isas;
}

Isa BestIsa() { return AvailableIsas().back(); }

}  // namespace moe
