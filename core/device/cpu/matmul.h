// Many matrix products at once: what Gemm (one) and GroupedGemm (one per group) have in common. The products are cut
// into tiles by their shapes alone, K never, so every sum has one order whatever the number of workers; the tiles go
// to the workers largest first.
#ifndef MOE_CORE_DEVICE_CPU_MATMUL_H_
#define MOE_CORE_DEVICE_CPU_MATMUL_H_

#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "core/device/cpu/kernels.h"
#include "core/device/cpu/thread_pool.h"

namespace moe {

// c_MN = alpha op(a) op(b) + beta c; row-major, lda, ldb, ldc in elements. beta = 0 never reads c.
struct MatMul {
  bool trans_a = false, trans_b = false;
  int64_t m = 0, n = 0, k = 0;
  float alpha = 1, beta = 0;
  const float* a = nullptr;
  int64_t lda = 0;
  const float* b = nullptr;
  int64_t ldb = 0;
  float* c = nullptr;
  int64_t ldc = 0;
};

class MatMulRunner {
 public:
  MatMulRunner(ThreadPool* pool, const Kernels* kernels);
  // Start with Clear, Add the products, Run them. The lists keep their memory from call to call.
  void Clear() { products_.clear(); }
  void Add(const MatMul& product) { products_.push_back(product); }
  void Run();

 private:
  struct Tile {
    const MatMul* product;
    int64_t m0, m, n0, n;
  };
  // Rows [begin, end) into tiles of about `target` multiply-adds.
  void Cut(const MatMul& product, int64_t begin, int64_t end, double target);
  void CutUnpacked(const MatMul& product);
  void RunTile(const Tile& tile, int worker);

  struct AlignedDelete {
    void operator()(float* p) const { ::operator delete(p, std::align_val_t(size_t{2} << 20)); }
  };

  ThreadPool* pool_;
  const Kernels* kernels_;
  std::vector<MatMul> products_;   // largest first once running
  std::vector<Tile> tiles_;
  std::vector<std::unique_ptr<float[], AlignedDelete>> scratch_;   // packed operands, one block per worker
};

}  // namespace moe
#endif  // MOE_CORE_DEVICE_CPU_MATMUL_H_
