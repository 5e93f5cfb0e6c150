// Fill, Copy, Scale, Axpy, RandomNormal and the sums.
#include <cmath>

#include "core/base/random.h"
#include "core/device/rows.h"
#include "core/device/tests/harness.h"

namespace moe::testing {
namespace {

class Elementwise : public DeviceTest {};
MOE_INSTANTIATE_DEVICE_TEST(Elementwise);

const std::vector<int64_t> kColumns = {0, 1, 3, 8, 16, 17, 65};

TEST_P(Elementwise, Fill) {
  ForShapes(OddSizes(), kColumns, [&](int64_t T, int64_t D) {
    Operand y = Poison({T, D}), ids = PoisonInts({T});
    Run([&](Device* d, const View& on) { return d->Fill(on(y), 0.1); });
    ExpectClose("y", y, 1e-7);
    Run([&](Device* d, const View& on) { return d->Fill(on(ids), -1); });
    ExpectEqual("ids", ids);
  });
}

TEST_P(Elementwise, CopyBetweenFloatTypes) {
  ForShapes(OddSizes(), kColumns, [&](int64_t T, int64_t D) {
    Operand x = Random({T, D});
    pad_ = 1;
    Operand y = Poison({T, D});
    Run([&](Device* d, const View& on) { return d->Copy(on(x), on(y)); });
    ExpectEqual("y", y);
    // Into the other type and back: on float32 devices nothing is lost, on float64 the values are float32's already.
    for (size_t i = 1; i < num_devices(); ++i) {
      const DType other = dtype() == DType::kF32 ? DType::kF64 : DType::kF32;
      std::vector<double> memory(T * D + 1);
      const TensorView z(memory.data(), other, {T, D});
      EXPECT_OK(device(i)->Copy(x[i], z));
      EXPECT_OK(device(i)->Fill(y[i], 7));
      EXPECT_OK(device(i)->Copy(z, y[i]));
    }
    ExpectEqual("y", y);
  });
}

TEST_P(Elementwise, CopyIntegers) {
  for (int64_t n : OddSizes()) {
    Operand x = Ints({n}, RandomInts(n, -1000, 1000)), y = PoisonInts({n});
    Run([&](Device* d, const View& on) { return d->Copy(on(x), on(y)); });
    ExpectEqual("y", y);
    Operand b = Ints({n}, RandomInts(n, 0, 256), DType::kU8), c = Ints({n}, RandomInts(n, 0, 256), DType::kU8);
    Run([&](Device* d, const View& on) { return d->Copy(on(b), on(c)); });
    ExpectEqual("c", c);
  }
}

TEST_P(Elementwise, ScaleAndAxpy) {
  ForShapes(OddSizes(), kColumns, [&](int64_t T, int64_t D) {
    Operand x = Random({T, D}), y = Random({T, D});
    Run([&](Device* d, const View& on) { return d->Axpy(-0.7, on(x), on(y)); });
    ExpectClose("y", y, 3e-7);
    Run([&](Device* d, const View& on) { return d->Scale(on(y), 1.7); });
    ExpectClose("y", y, 5e-7);
    Run([&](Device* d, const View& on) { return d->Scale(on(y), 0); });
    ExpectEqual("y", y);
  });
}

// Outer dimensions of rank 3 with padded rows: [a, b, c] cut out of [a, b, c + 2].
TEST_P(Elementwise, RankThreeWithPadding) {
  Operand wide_x = Random({3, 5, 9}), wide_y = Random({3, 5, 9});
  Operand x = wide_x, y = wide_y;
  for (Operand* o : {&x, &y})
    for (TensorView& v : o->views) v = v.Columns(1, 7);
  Run([&](Device* d, const View& on) { return d->Axpy(2.5, on(x), on(y)); });
  ExpectClose("wide_y", wide_y, 3e-7);   // the columns outside are as before on both sides
  const std::vector<double> sums = RunScalar([&](Device* d, const View& on) { return d->Sum(on(y)); });
  EXPECT_NEAR(sums[1], sums[0], 1e-4);
  Run([&](Device* d, const View& on) { return d->Copy(on(x), on(y)); });
  ExpectEqual("wide_y", wide_y);
  Run([&](Device* d, const View& on) { return d->RandomNormal(on(y), 5, 100, 1, 2); });
  ExpectClose("wide_y", wide_y, 1e-7);
  Run([&](Device* d, const View& on) { return d->Fill(on(y), 3); });
  ExpectEqual("wide_y", wide_y);
}

TEST_P(Elementwise, RandomNormalIsTheStreamOfCoreBase) {
  ForShapes(OddSizes(), {1, 3, 16, 33}, [&](int64_t T, int64_t D) {
    Operand y = Poison({T, D});
    const int64_t first = (int64_t{1} << 32) - 50;   // the index crosses 32 bits
    Run([&](Device* d, const View& on) { return d->RandomNormal(on(y), 77, first, 0.5, 0.02); });
    ExpectClose("y", y, 1e-7);
    const std::vector<double> got = Got(y);
    for (size_t i = 0; i < got.size(); ++i) {
      const double exact = 0.5 + 0.02 * moe::RandomNormal(77, first + i);
      ASSERT_EQ(got[i], dtype() == DType::kF32 ? static_cast<float>(exact) : exact) << i;
    }
  });
}

TEST_P(Elementwise, RandomUniformIsTheStreamOfCoreBase) {
  for (int64_t n : OddSizes()) {
    Operand y = Poison({n});
    Run([&](Device* d, const View& on) { return d->RandomUniform(on(y), 78, 1000, 0.9, 1.1); });
    ExpectClose("y", y, 1e-7);
    const std::vector<double> got = Got(y);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], 0.9 + 0.2 * moe::RandomUniform(78, 1000 + i), 1e-7) << i;
  }
}

TEST_P(Elementwise, Multiply) {
  for (int64_t n : OddSizes()) {
    Operand a = Random({n}), b = Random({n}), y = Poison({n});
    Run([&](Device* d, const View& on) { return d->Multiply(on(a), on(b), on(y)); });
    ExpectClose("y", y, 1e-7);
    Run([&](Device* d, const View& on) { return d->Multiply(on(a), on(b), on(a)); });   // in place
    ExpectClose("y in a", a, 1e-7);
    Run([&](Device* d, const View& on) { return d->Multiply(on(y), on(b), on(b)); });
    ExpectClose("y in b", b, 3e-7);
  }
}

TEST_P(Elementwise, SumsOfOddSizes) {
  ForShapes(OddSizes(), kColumns, [&](int64_t T, int64_t D) {
    Operand x = Random({T, D}, 1, 0.3);
    double sum = 0, squares = 0, most = 0;
    for (double v : Got(x, 0)) { sum += v; squares += v * v; most = std::max(most, std::abs(v)); }
    for (double got : RunScalar([&](Device* d, const View& on) { return d->MaxAbs(on(x)); })) EXPECT_NEAR(got, most, 1e-7 * most);
    for (double got : RunScalar([&](Device* d, const View& on) { return d->Sum(on(x)); })) EXPECT_NEAR(got, sum, 1e-9 * (1 + std::abs(sum)));
    for (double got : RunScalar([&](Device* d, const View& on) { return d->SumSquares(on(x)); })) EXPECT_NEAR(got, squares, 1e-9 * (1 + squares));
  });
}

// Longer than any block of a parallel sum; values whose float32 sum would be wrong.
TEST_P(Elementwise, SumsOfLongVectors) {
  for (int64_t n : {16384, 65536 + 17, 200001}) {
    Operand x = Random({n}, 1, 1000);
    double sum = 0, squares = 0;
    for (double v : Got(x, 0)) { sum += v; squares += v * v; }
    for (double got : RunScalar([&](Device* d, const View& on) { return d->Sum(on(x)); })) EXPECT_NEAR(got, sum, 1e-11 * sum);
    for (double got : RunScalar([&](Device* d, const View& on) { return d->SumSquares(on(x)); })) EXPECT_NEAR(got, squares, 1e-11 * squares);
  }
}

TEST_P(Elementwise, ColumnSum) {
  ForShapes({0, 1, 2, 3, 7, 17, 100, 257, 1500}, {0, 1, 2, 7, 8, 17, 64, 100}, [&](int64_t T, int64_t E) {
    Operand x = Random({T, E}, 1, 1), sum = Poison({E});
    Run([&](Device* d, const View& on) { return d->ColumnSum(on(x), on(sum), false); });
    ExpectClose("sum", sum, 1e-6);
    Run([&](Device* d, const View& on) { return d->ColumnSum(on(x), on(sum), true); });
    ExpectClose("sum", sum, 1e-6);
  });
}

TEST_P(Elementwise, NotANumberIsNotHidden) {
  std::vector<double> values(1000, 1.0);
  values[777] = NAN;
  Operand x = Values({1000}, values);
  for (double got : RunScalar([&](Device* d, const View& on) { return d->Sum(on(x)); })) EXPECT_TRUE(std::isnan(got));
  for (double got : RunScalar([&](Device* d, const View& on) { return d->SumSquares(on(x)); })) EXPECT_TRUE(std::isnan(got));
  for (double got : RunScalar([&](Device* d, const View& on) { return d->MaxAbs(on(x)); })) EXPECT_TRUE(std::isnan(got));
}

}  // namespace
}  // namespace moe::testing
