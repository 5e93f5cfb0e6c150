#include "core/device/cpu/matmul.h"

#include <algorithm>

#include "core/device/cpu/blas.h"

namespace moe {
namespace {

// Fine enough that a few dozen workers end at about the same time, coarse enough that packing the operands of a tile
// is small beside its multiplications.
constexpr double kTilesOfAll = 64;
constexpr double kSmallestTile = 4e6;   // multiply-adds; some 80 microseconds of one core
constexpr int64_t kSmallestSide = 64;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

void MatMulRunner::Cut(const MatMul& p, double target) {
  const double work = static_cast<double>(p.m) * p.n * std::max<int64_t>(p.k, 1);
  const int64_t pieces = std::max<int64_t>(1, static_cast<int64_t>(work / target));
  // Among the ways to cut into at least that many pieces, the one whose tiles read least of a and b.
  int64_t rows = 1, columns = 1;
  double best = -1;
  for (int64_t r = 1; r <= std::min(pieces, CeilDiv(p.m, kSmallestSide)); ++r) {
    const int64_t c = std::min(CeilDiv(pieces, r), CeilDiv(p.n, kSmallestSide));
    if (r * c < pieces && best >= 0 && rows * columns >= r * c) continue;
    const double read = static_cast<double>(r) * p.n + static_cast<double>(c) * p.m;
    if (best < 0 || read < best || rows * columns < std::min(pieces, r * c)) rows = r, columns = c, best = read;
  }
  const int64_t m = CeilDiv(p.m, rows), n = CeilDiv(CeilDiv(p.n, columns), 16) * 16;
  for (int64_t m0 = 0; m0 < p.m; m0 += m) {
    for (int64_t n0 = 0; n0 < p.n; n0 += n) {
      Tile t{&p, m0, std::min(m, p.m - m0), n0, std::min(n, p.n - n0), 0};
      t.work = static_cast<double>(t.m) * t.n * p.k;
      tiles_.push_back(t);
    }
  }
}

void MatMulRunner::Run() {
  double all = 0;
  for (const MatMul& p : products_) all += static_cast<double>(p.m) * p.n * p.k;
  const double target = std::max(all / kTilesOfAll, kSmallestTile);
  tiles_.clear();
  for (const MatMul& p : products_) {
    if (p.m > 0 && p.n > 0) Cut(p, target);
  }
  std::stable_sort(tiles_.begin(), tiles_.end(), [](const Tile& x, const Tile& y) { return x.work > y.work; });
  pool_->ParallelFor(tiles_.size(), [this](int64_t i) { RunTile(tiles_[i]); });
}

void MatMulRunner::RunTile(const Tile& t) const {
  const MatMul& p = *t.product;
  const float* a = p.a + (p.trans_a ? t.m0 : t.m0 * p.lda);
  const float* b = p.b + (p.trans_b ? t.n0 * p.ldb : t.n0);
  float* c = p.c + t.m0 * p.ldc + t.n0;
  BlasGemm(p.trans_a, p.trans_b, t.m, t.n, p.k, p.alpha, a, p.lda, b, p.ldb, p.beta, c, p.ldc);
}

}  // namespace moe
