#include "core/device/cpu/matmul.h"

#include <algorithm>
#include <cmath>

#include "core/device/cpu/huge_pages.h"

namespace moe {
namespace {

// Large tiles first, because what packing costs goes with a tile's sides and what it is good for with its area; then,
// with the last part of the work, small tiles that let the workers end at about the same time.
constexpr double kLargeTilesOfAll = 16, kSmallTilesOfAll = 64;
constexpr double kPartInLargeTiles = 0.75;
constexpr double kSmallestTile = 4e6;   // multiply-adds; some 80 microseconds of one core
constexpr int64_t kSmallestSide = 64;

// What is packed at a time: a block of a (kRows x kDepth, 192 KiB) stays in the second cache while panels of b pass; b
// (kDepth x kColumns, 1 MiB) stays in the third. kRows is a multiple of every kernel's panel.
constexpr int64_t kRows = 192;
constexpr int64_t kDepth = 256;
constexpr int64_t kColumns = 1024;

// Products with so few rows (or columns) are bound by reading the other operand; they are cut by its size, which takes
// some 50 microseconds of one core's share of the memory.
constexpr int64_t kFewRows = 16;
constexpr int64_t kFewRowsElements = 128 * 1024;

// Tiles end on whole panels of every instruction set.
constexpr int64_t kRowUnit = 12, kColumnUnit = 64;

double Work(int64_t m, int64_t n, int64_t k) { return static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The ways to compute a product; decided by the whole product, so that a tile's result does not depend on the cut.
enum class Way { kPacked, kFewRows, kFewColumns };
Way WayOf(const MatMul& p) {
  if (p.m <= kFewRows && !(p.trans_a && p.trans_b)) return Way::kFewRows;
  if (p.n <= kFewRows && p.trans_b && !p.trans_a) return Way::kFewColumns;
  return Way::kPacked;
}

}  // namespace

MatMulRunner::MatMulRunner(ThreadPool* pool, const Kernels* kernels) : pool_(pool), kernels_(kernels) {
  constexpr size_t kHugePage = size_t{2} << 20;
  for (int worker = 0; worker < pool->threads(); ++worker) {
    scratch_.emplace_back(static_cast<float*>(::operator new(kHugePage, std::align_val_t(kHugePage))));
    static_assert(sizeof(float) * kDepth * (kRows + kColumns) <= kHugePage);
    AdviseHugePages(scratch_.back().get(), kHugePage);
  }
}

void MatMulRunner::Run() {
  double all = 0;
  for (const MatMul& p : products_) all += Work(p.m, p.n, p.k);
  std::stable_sort(products_.begin(), products_.end(), [](const MatMul& x, const MatMul& y) { return Work(x.m, x.n, x.k) > Work(y.m, y.n, y.k); });
  const double large = std::max(all / kLargeTilesOfAll, kSmallestTile), small = std::max(all / kSmallTilesOfAll, kSmallestTile);
  tiles_.clear();
  double left = all * kPartInLargeTiles;   // of what goes into large tiles
  for (const MatMul& p : products_) {
    if (p.m == 0 || p.n == 0) continue;
    if (WayOf(p) != Way::kPacked) {
      CutUnpacked(p);
      continue;
    }
    const double work = Work(p.m, p.n, p.k);
    const int64_t rows = left >= work ? p.m : std::min(p.m, static_cast<int64_t>(left / work * static_cast<double>(p.m)) / kRows * kRows);
    Cut(p, 0, rows, large);
    Cut(p, rows, p.m, small);
    left = std::max(0.0, left - work);
  }
  std::stable_sort(tiles_.begin(), tiles_.end(), [](const Tile& x, const Tile& y) { return Work(x.m, x.n, x.product->k) > Work(y.m, y.n, y.product->k); });
  pool_->ParallelFor(tiles_.size(), [this](int64_t i, int worker) { RunTile(tiles_[i], worker); });
}

void MatMulRunner::Cut(const MatMul& p, int64_t begin, int64_t end, double target) {
  if (begin == end) return;
  const int64_t pieces = std::max<int64_t>(1, std::llround(Work(end - begin, p.n, p.k) / target));
  // Among the ways to cut into about that many, the one whose tiles read least of a and b.
  const int64_t most_rows = CeilDiv(end - begin, kSmallestSide), most_columns = CeilDiv(p.n, kSmallestSide);
  int64_t rows = 1, columns = 1;
  double best = -1;
  for (int64_t r = 1; r <= std::min(pieces, most_rows); ++r) {
    const int64_t c = std::min(CeilDiv(pieces, r), most_columns);
    if (r * c < std::min(pieces, most_rows * most_columns)) continue;
    const double read = static_cast<double>(r) * p.n + static_cast<double>(c) * (end - begin);
    if (best < 0 || read < best) rows = r, columns = c, best = read;
  }
  if (best < 0) rows = most_rows, columns = most_columns;
  const int64_t m = CeilDiv(CeilDiv(end - begin, rows), kRowUnit) * kRowUnit, n = CeilDiv(CeilDiv(p.n, columns), kColumnUnit) * kColumnUnit;
  for (int64_t m0 = begin; m0 < end; m0 += m) {
    for (int64_t n0 = 0; n0 < p.n; n0 += n) tiles_.push_back({&p, m0, std::min(m, end - m0), n0, std::min(n, p.n - n0)});
  }
}

void MatMulRunner::CutUnpacked(const MatMul& p) {
  const bool few_rows = WayOf(p) == Way::kFewRows;
  const int64_t size = few_rows ? p.n : p.m;
  const int64_t step = CeilDiv(CeilDiv(size, std::max<int64_t>(1, size * p.k / kFewRowsElements)), kColumnUnit) * kColumnUnit;
  for (int64_t at = 0; at < size; at += step) {
    const int64_t part = std::min(step, size - at);
    tiles_.push_back(few_rows ? Tile{&p, 0, p.m, at, part} : Tile{&p, at, part, 0, p.n});
  }
}

void MatMulRunner::RunTile(const Tile& t, int worker) {
  const MatMul& p = *t.product;
  const GemmKernels& gemm = kernels_->gemm;
  const Way way = WayOf(p);
  if (way != Way::kPacked) {
    const float* a = p.a + (p.trans_a ? t.m0 : t.m0 * p.lda);
    const float* b = p.b + (p.trans_b ? t.n0 * p.ldb : t.n0);
    float* c = p.c + t.m0 * p.ldc + t.n0;
    // Few columns: the same product seen from its transpose.
    if (way == Way::kFewColumns) return gemm.few_rows({true, t.n, t.m, p.k, p.alpha, p.beta, b, p.ldb, 1, a, p.lda, c, 1, p.ldc});
    return gemm.few_rows({p.trans_b, t.m, t.n, p.k, p.alpha, p.beta, a, p.trans_a ? 1 : p.lda, p.trans_a ? p.lda : 1, b, p.ldb, c, p.ldc, 1});
  }
  float* packed_a = scratch_[worker].get();
  float* packed_b = packed_a + kDepth * kRows;
  // Equal parts of k, so that the last one is not a sliver; at least one, which applies beta.
  const int64_t parts = std::max<int64_t>(1, CeilDiv(p.k, kDepth)), depth = CeilDiv(p.k, parts);
  const auto a_at = [&p](int64_t i, int64_t k0) { return p.a + (p.trans_a ? k0 * p.lda + i : i * p.lda + k0); };
  for (int64_t j = t.n0; j < t.n0 + t.n; j += kColumns) {
    const int64_t n = std::min(kColumns, t.n0 + t.n - j);
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t k0 = std::min(p.k, part * depth), k = std::min(depth, p.k - k0);
      for (int64_t i = t.m0; i < t.m0 + t.m; i += kRows) {
        const int64_t m = std::min(kRows, t.m0 + t.m - i);
        gemm.pack_a(p.trans_a, a_at(i, k0), p.lda, m, k, packed_a);
        GemmBlock block{m, n, k, p.alpha, part == 0 ? p.beta : 1, packed_a, packed_b, nullptr, p.ldb, p.trans_b, p.c + i * p.ldc + j, p.ldc, nullptr, 0, 0, p.lda};
        if (i == t.m0) block.b_from = p.b + (p.trans_b ? j * p.ldb + k0 : k0 * p.ldb + j);
        // The block of a after this one: further down, or the first of the next part of k.
        const bool down = i + m < t.m0 + t.m;
        const int64_t next_i = down ? i + m : t.m0, next_k0 = down ? k0 : k0 + k;
        const int64_t next_m = std::min(kRows, t.m0 + t.m - next_i), next_k = std::min(depth, p.k - next_k0);
        if (next_k > 0) {
          block.next_a = a_at(next_i, next_k0);
          block.next_rows = p.trans_a ? next_k : next_m;
          block.next_length = p.trans_a ? next_m : next_k;
        }
        gemm.block(block);
      }
    }
  }
}

}  // namespace moe
