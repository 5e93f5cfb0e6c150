// Instruction sets that the vector kernels are compiled for. One binary holds them all; a device picks one when it is
// made, so what is built on one x86-64 machine runs on any other.
#ifndef MOE_CORE_DEVICE_CPU_ISA_H_
#define MOE_CORE_DEVICE_CPU_ISA_H_

#include <vector>

namespace moe {

enum class Isa {
  kGeneric,  // 4 lanes, what the compiler's target always has (SSE2 on x86-64)
  kAvx2,     // 8 lanes, AVX2 and FMA
  kAvx512,   // 16 lanes, AVX-512 F, DQ, BW and VL
};

const char* Name(Isa isa);
// What this machine and its operating system can run, ascending; never empty.
std::vector<Isa> AvailableIsas();
Isa BestIsa();

}  // namespace moe
#endif  // MOE_CORE_DEVICE_CPU_ISA_H_
