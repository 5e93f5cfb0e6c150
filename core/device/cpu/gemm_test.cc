// What the common device tests are too small for: products that cross every block and tile of the packed way, on every
// instruction set, with small integers so that float32 is exact and the comparison is too; and several devices at work
// at the same time, as ranks that are threads of one process.
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "core/base/random.h"
#include "core/device/cpu/cpu_device.h"
#include "gtest/gtest.h"

namespace moe {
namespace {

struct Matrix {
  std::vector<float> data;
  TensorView view;
  Matrix(const Matrix&) = delete;   // the view points into data
  Matrix(Matrix&&) = default;
  Matrix(int64_t rows, int64_t columns, int64_t padding, float fill) : data(rows * (columns + padding), fill), view(data.data(), DType::kF32, {rows, columns + padding}) {
    view = view.Columns(0, columns);
  }
  float& operator()(int64_t i, int64_t j) { return data[i * view.stride(0) + j]; }
};

// Small integers: sums of thousands of their products are exact.
Matrix Integers(int64_t rows, int64_t columns, int64_t padding, uint64_t key) {
  Matrix m(rows, columns, padding, 99.0f);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) m(i, j) = static_cast<float>(static_cast<int64_t>(RandomBelow(key, i * columns + j, 7)) - 3);
  }
  return m;
}

std::vector<float> Naive(bool ta, bool tb, int64_t m, int64_t n, int64_t k, Matrix& a, Matrix& b) {
  std::vector<float> c(m * n, 0.0f);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t p = 0; p < k; ++p) {
      const float x = ta ? a(p, i) : a(i, p);
      for (int64_t j = 0; j < n; ++j) c[i * n + j] += x * (tb ? b(j, p) : b(p, j));
    }
  }
  return c;
}

struct Size { int64_t m, n, k; };
// Beyond the block of rows (192), of depth (256) and of columns (1024); few rows, few columns; ragged ends of all.
const Size kSizes[] = {{197, 70, 263}, {40, 1061, 7}, {17, 1030, 259}, {20, 35, 513}, {401, 33, 20}, {1, 530, 261}, {3, 65, 700}, {16, 67, 90},
                       {300, 1, 40},   {350, 16, 77}, {333, 15, 20},   {64, 64, 1},   {500, 300, 2}, {13, 17, 0},   {197, 1030, 3}};

class GemmTest : public testing::TestWithParam<Isa> {};

TEST_P(GemmTest, ExactOverAllBlocks) {
  auto device = *MakeCpuDevice(2, GetParam());
  uint64_t key = 1;
  for (const Size& s : kSizes) {
    for (int form = 0; form < 4; ++form) {
      const bool ta = form & 1, tb = form & 2;
      SCOPED_TRACE(absl::StrCat("m ", s.m, " n ", s.n, " k ", s.k, ta ? " a transposed" : "", tb ? " b transposed" : ""));
      const int64_t padding = key % 3;
      Matrix a = ta ? Integers(s.k, s.m, padding, ++key) : Integers(s.m, s.k, padding, ++key);
      Matrix b = tb ? Integers(s.n, s.k, padding, ++key) : Integers(s.k, s.n, padding, ++key);
      Matrix c(s.m, s.n, padding, std::numeric_limits<float>::quiet_NaN());
      const std::vector<float> want = Naive(ta, tb, s.m, s.n, s.k, a, b);
      ASSERT_TRUE(device->Gemm(ta, tb, 2, a.view, b.view, 0, c.view).ok());
      int64_t wrong = 0;
      for (int64_t i = 0; i < s.m; ++i) {
        for (int64_t j = 0; j < s.n; ++j) wrong += c(i, j) != 2 * want[i * s.n + j];
      }
      EXPECT_EQ(wrong, 0) << "beta 0";
      ASSERT_TRUE(device->Gemm(ta, tb, -1, a.view, b.view, 3, c.view).ok());
      for (int64_t i = 0; i < s.m; ++i) {
        for (int64_t j = 0; j < s.n; ++j) wrong += c(i, j) != 5 * want[i * s.n + j];
        for (int64_t j = s.n; j < s.n + padding; ++j) wrong += !std::isnan(c(i, j));
      }
      EXPECT_EQ(wrong, 0) << "beta 3, padding";
    }
  }
}

// Groups that are empty, of one row, few, many; sizes that are cut and sizes that are not.
TEST_P(GemmTest, GroupedExact) {
  auto device = *MakeCpuDevice(3, GetParam());
  const std::vector<int64_t> offsets = {0, 0, 1, 17, 18, 330, 330, 333, 346};
  const int64_t e = 8, R = 346, O = 150, I = 270;
  Matrix x = Integers(R, I, 5, 11), w = Integers(e * O, I, 0, 12), dy = Integers(R, O, 2, 13);
  const TensorView w_eOI(w.data.data(), DType::kF32, {e, O, I});
  Matrix y(R, O, 1, NAN), dx(R, I, 0, NAN);
  std::vector<float> dw(e * O * I, NAN);
  const TensorView dw_eOI(dw.data(), DType::kF32, {e, O, I});
  ASSERT_TRUE(device->GroupedGemm(GroupedForm::kForward, x.view, w_eOI, offsets, 0, y.view).ok());
  ASSERT_TRUE(device->GroupedGemm(GroupedForm::kInputGrad, dy.view, w_eOI, offsets, 0, dx.view).ok());
  ASSERT_TRUE(device->GroupedGemm(GroupedForm::kWeightGrad, dy.view, x.view, offsets, 0, dw_eOI).ok());
  ASSERT_TRUE(device->GroupedGemm(GroupedForm::kWeightGrad, dy.view, x.view, offsets, 1, dw_eOI).ok());
  std::vector<float> want_dw(e * O * I, 0.0f);
  int64_t wrong_y = 0, wrong_dx = 0, wrong_dw = 0;
  for (int64_t g = 0; g < e; ++g) {
    for (int64_t r = offsets[g]; r < offsets[g + 1]; ++r) {
      std::vector<float> want_dx(I, 0.0f);
      for (int64_t o = 0; o < O; ++o) {
        float sum = 0;
        const float* row = w.data.data() + (g * O + o) * I;
        for (int64_t i = 0; i < I; ++i) {
          sum += x(r, i) * row[i];
          want_dx[i] += dy(r, o) * row[i];
          want_dw[(g * O + o) * I + i] += 2 * dy(r, o) * x(r, i);
        }
        wrong_y += y(r, o) != sum;
      }
      for (int64_t i = 0; i < I; ++i) wrong_dx += dx(r, i) != want_dx[i];
    }
  }
  for (size_t i = 0; i < dw.size(); ++i) wrong_dw += dw[i] != want_dw[i];
  EXPECT_EQ(wrong_y, 0);
  EXPECT_EQ(wrong_dx, 0);
  EXPECT_EQ(wrong_dw, 0);
}

// Rounding included, the bits are the same for any number of workers.
TEST_P(GemmTest, SameBitsForAnyNumberOfThreads) {
  for (const Size& s : {Size{500, 230, 310}, Size{9, 1500, 100}, Size{900, 12, 100}}) {
    Matrix a = Integers(s.m, s.k, 0, 21), b = Integers(s.n, s.k, 0, 22);
    for (float& v : a.data) v = v * 0.3f + 0.01f;
    for (float& v : b.data) v = v * 0.7f - 0.02f;
    std::vector<float> first;
    for (int threads : {1, 2, 3, 5}) {
      auto device = *MakeCpuDevice(threads, GetParam());
      Matrix c(s.m, s.n, 0, 0);
      ASSERT_TRUE(device->Gemm(false, true, 1, a.view, b.view, 0, c.view).ok());
      if (threads == 1) first = c.data;
      EXPECT_TRUE(c.data == first) << threads << " threads, m " << s.m << " n " << s.n << " k " << s.k;
    }
  }
}

std::string IsaName(const testing::TestParamInfo<Isa>& info) { return Name(info.param); }
INSTANTIATE_TEST_SUITE_P(Isas, GemmTest, testing::ValuesIn(AvailableIsas()), IsaName);

// Ranks that are threads: four devices of two workers each, many small products at the same time. (The sequential
// OpenBLAS fails this: its callers share scratch memory.)
TEST(GemmStress, DevicesAtTheSameTime) {
  constexpr int kRanks = 4, kRounds = 400;
  std::vector<int64_t> wrong(kRanks, 0);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([rank, &wrong] {
      auto device = *MakeCpuDevice(2);
      Matrix a = Integers(40, 30, 0, 100 + rank), b = Integers(30, 50, 0, 200 + rank), c(40, 50, 0, 0);
      const std::vector<float> want = Naive(false, false, 40, 50, 30, a, b);
      for (int round = 0; round < kRounds; ++round) {
        std::fill(c.data.begin(), c.data.end(), NAN);
        if (!device->Gemm(false, false, 1, a.view, b.view, 0, c.view).ok() || c.data != want) ++wrong[rank];
      }
    });
  }
  for (std::thread& t : ranks) t.join();
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(wrong[rank], 0) << "rank " << rank;
}

}  // namespace
}  // namespace moe
