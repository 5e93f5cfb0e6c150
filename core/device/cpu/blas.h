// The one place that knows OpenBLAS: single-threaded products, called from our own workers.
#ifndef MOE_CORE_DEVICE_CPU_BLAS_H_
#define MOE_CORE_DEVICE_CPU_BLAS_H_

#include <cstdint>
#include <string>

#include "core/device/cpu/isa.h"

namespace moe {

// c_MN = alpha op(a) op(b) + beta c, row-major. Any number of threads may call it at once.
void BlasGemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
              const float* b, int64_t ldb, float beta, float* c, int64_t ldc);

// The library's version and the kernels it chose, with a warning when these are older than the machine
// (OPENBLAS_CORETYPE in the environment does that).
std::string DescribeBlas(Isa best);

}  // namespace moe
#endif  // MOE_CORE_DEVICE_CPU_BLAS_H_
