// OpenBLAS must be the build with locks (Debian: libopenblas0-pthread): the sequential build hands the same scratch
// buffer to two threads that call it at the same time (seen in blas_memory_alloc, and as wrong products). Its own
// threads are switched off for good by the first call here.
#include "core/device/cpu/blas.h"

#include <cblas.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace moe {
namespace {

void UseCallersThreadOnly() {
  static const bool done = (openblas_set_num_threads(1), true);
  (void)done;
}

}  // namespace

void BlasGemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
              const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  UseCallersThreadOnly();
  const auto i = [](int64_t x) { return static_cast<blasint>(x); };
  cblas_sgemm(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans, trans_b ? CblasTrans : CblasNoTrans, i(m), i(n), i(k), alpha, a, i(lda), b,
              i(ldb), beta, c, i(ldc));
}

std::string DescribeBlas(Isa best) {
  UseCallersThreadOnly();
  const std::string core = openblas_get_corename();
  std::string text = absl::StrCat("OpenBLAS core ", core);
  const bool wide = core == "SkylakeX" || core == "Cooperlake" || core == "SapphireRapids";
  const bool avx2 = wide || core == "Haswell" || core == "Zen" || core == "Excavator";
  if ((best == Isa::kAvx2 || best == Isa::kAvx512) && !avx2) absl::StrAppend(&text, " (older than this machine: is OPENBLAS_CORETYPE set?)");
  return text;
}

}  // namespace moe
