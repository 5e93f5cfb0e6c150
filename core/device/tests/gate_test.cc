// Operations of gates: softmax, top-k, columns by id, rows normalised, shifted, masked.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/device/tests/harness.h"

namespace moe::testing {
namespace {

class Gates : public DeviceTest {
 protected:
  // K different columns per row, some replaced by -1.
  std::vector<int64_t> RandomIds(int64_t T, int64_t E, int64_t K, bool with_dropped) {
    std::vector<int64_t> ids;
    for (int64_t t = 0; t < T; ++t) {
      const int64_t start = RandomInts(1, 0, E)[0];
      for (int64_t k = 0; k < K; ++k) ids.push_back(with_dropped && RandomInts(1, 0, 4)[0] == 0 ? -1 : (start + k) % E);
    }
    return ids;
  }
};
MOE_INSTANTIATE_DEVICE_TEST(Gates);

const std::vector<int64_t> kExperts = {1, 2, 7, 8, 9, 16, 17, 64, 130};

TEST_P(Gates, SoftmaxAndBackward) {
  ForShapes(OddSizes(), kExperts, [&](int64_t T, int64_t E) {
    Operand l = Random({T, E}, 4), p = Poison({T, E}), lse = Poison({T}), dp = Random({T, E}), dl = Poison({T, E});
    Run([&](Device* d, const View& on) { return d->Softmax(on(l), on(p), on(lse)); });
    ExpectClose("p", p, 1e-6);
    ExpectClose("lse", lse, 1e-6);
    Run([&](Device* d, const View& on) { return d->SoftmaxBackward(on(p), on(dp), on(dl)); });
    ExpectClose("dl", dl, 1e-6);
    Run([&](Device* d, const View& on) { return d->SoftmaxBackward(on(p), on(dp), on(dp)); });   // in place
    ExpectClose("dl in place", dp, 1e-6);
    Run([&](Device* d, const View& on) { return d->Softmax(on(l), on(l), TensorView()); });   // in place, without lse
    ExpectClose("p in place", l, 1e-6);
  });
}

TEST_P(Gates, SoftmaxOfExtremes) {
  const double inf = std::numeric_limits<double>::infinity();
  Operand l = Values({4, 9}, {1e4, 9999, 0, -1e4, 1, 2, 3, 4, 5,                //
                              -inf, 0, -inf, 1, -inf, -inf, -inf, -inf, -inf,  //
                              -3e38, -3e38, -3e38, -3e38, -3e38, -3e38, -3e38, -3e38, -3e38,
                              -1e4, -1e4, -1e4, -1e4, -1e4, -1e4, -1e4, -1e4, -10001});
  Operand p = Poison({4, 9}), lse = Poison({4});
  Run([&](Device* d, const View& on) { return d->Softmax(on(l), on(p), on(lse)); });
  ExpectClose("p", p, 1e-6);
  ExpectClose("lse", lse, 1e-6);
  EXPECT_EQ(Got(p)[9], 0);   // a masked score weighs nothing at all
}

TEST_P(Gates, SoftmaxDoesNotHideNotANumber) {
  std::vector<double> values(3 * 17, 0.5);
  values[17 + 13] = NAN;
  Operand l = Values({3, 17}, values), p = Poison({3, 17}), lse = Values({3}, {0, 0, 0});
  Run([&](Device* d, const View& on) { return d->Softmax(on(l), on(p), on(lse)); });
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(std::isnan(Got(lse)[i]), i == 1);
  for (size_t i = 0; i < 51; ++i) EXPECT_EQ(std::isnan(Got(p)[i]), i / 17 == 1) << i;
}

TEST_P(Gates, TopKWithTies) {
  ForShapes(OddSizes(), kExperts, [&](int64_t T, int64_t E) {
    std::vector<double> values;
    for (int64_t v : RandomInts(T * E, -3, 3)) values.push_back(static_cast<double>(v) / 2);   // seven values: many ties
    for (int64_t K : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{8}, E}) {
      if (K > E) continue;
      Operand s = Values({T, E}, values), ids = PoisonInts({T, K});
      Run([&](Device* d, const View& on) { return d->TopK(on(s), on(ids)); });
      ExpectEqual("ids", ids);
      const std::vector<double> got = Got(ids);
      for (int64_t t = 0; t < T; ++t) {
        for (int64_t k = 1; k < K; ++k) {
          const int64_t a = static_cast<int64_t>(got[t * K + k - 1]), b = static_cast<int64_t>(got[t * K + k]);
          ASSERT_TRUE(values[t * E + a] > values[t * E + b] || (values[t * E + a] == values[t * E + b] && a < b)) << "row " << t;
        }
      }
    }
  });
}

TEST_P(Gates, TopKOfSignedZerosIsATie) {
  Operand s = Values({2, 4}, {-0.0, 0.0, -1, 0.0, 0.0, -0.0, 0.0, -0.0}), ids = PoisonInts({2, 3});
  Run([&](Device* d, const View& on) { return d->TopK(on(s), on(ids)); });
  EXPECT_EQ(Got(ids), (std::vector<double>{0, 1, 3, 0, 1, 2}));
  ExpectEqual("ids", ids);
}

// The lowest bad row is named, whatever the number of threads.
TEST_P(Gates, TopKRefusesWhatIsNotFinite) {
  for (int64_t T : {1, 7, 257}) {
    for (double bad : {static_cast<double>(NAN), HUGE_VAL, -HUGE_VAL}) {
      for (int64_t row : {int64_t{0}, T / 2, T - 1}) {
        std::vector<double> values(T * 9, 1.0);
        values[row * 9 + 8] = bad;
        values[(T - 1) * 9 + 5] = NAN;
        Operand s = Values({T, 9}, values), ids = PoisonInts({T, 2});
        ExpectRefused([&](Device* d, const View& on) { return d->TopK(on(s), on(ids)); }, {"TopK", absl::StrCat("row ", row, " "), "finite"});
      }
    }
  }
}

TEST_P(Gates, GatherAndScatterColumns) {
  ForShapes(OddSizes(), kExperts, [&](int64_t T, int64_t E) {
    for (int64_t K : {1, 2, 8}) {
      if (K > E) continue;
      Operand p = Random({T, E}), ids = Ints({T, K}, RandomIds(T, E, K, true)), w = Poison({T, K}), dp = Random({T, E});
      Run([&](Device* d, const View& on) { return d->GatherColumns(on(p), on(ids), on(w)); });
      ExpectEqual("w", w);
      Run([&](Device* d, const View& on) { return d->ScatterColumns(on(w), on(ids), on(dp)); });
      ExpectClose("dp", dp, 3e-7);
    }
  });
}

TEST_P(Gates, ScatterAddsRepeatedIds) {
  Operand dw = Values({1, 3}, {1, 2, 4}), ids = Ints({1, 3}, {1, 1, -1}), dp = Values({1, 2}, {0, 8});
  Run([&](Device* d, const View& on) { return d->ScatterColumns(on(dw), on(ids), on(dp)); });
  EXPECT_EQ(Got(dp), (std::vector<double>{0, 11}));
  ExpectEqual("dp", dp);
}

TEST_P(Gates, ColumnsOutsideAreRefused) {
  for (int64_t bad : {-2, 8}) {
    Operand p = Random({3, 8}), w = Random({3, 2}), ids = Ints({3, 2}, {0, 1, 2, bad, 4, 5});
    const std::vector<std::string> parts = {"ids_TK", "position 3", absl::StrCat("is ", bad), "[-1, 8)"};
    ExpectRefused([&](Device* d, const View& on) { return d->GatherColumns(on(p), on(ids), on(w)); }, parts);
    ExpectRefused([&](Device* d, const View& on) { return d->ScatterColumns(on(w), on(ids), on(p)); }, parts);
  }
}

TEST_P(Gates, NormalizeRowsAndBackward) {
  ForShapes(OddSizes(), {1, 2, 3, 8, 9, 17}, [&](int64_t T, int64_t K) {
    std::vector<double> values;
    for (int64_t t = 0; t < T; ++t)
      for (int64_t k = 0; k < K; ++k) values.push_back(t % 5 == 4 ? 0 : k == 1 && t % 3 == 0 ? 0 : 0.05 + Uniform());   // rows and parts dropped
    Operand raw = Values({T, K}, values), w = Poison({T, K}), dw = Random({T, K}), draw = Poison({T, K});
    Run([&](Device* d, const View& on) { return d->NormalizeRows(on(raw), 1e-20, 2.5, on(w)); });
    ExpectClose("w", w, 1e-6);
    for (int64_t t = 4; t < T; t += 5) EXPECT_EQ(Got(w)[t * K], 0);
    Run([&](Device* d, const View& on) { return d->NormalizeRows(on(raw), 0, 1, on(w)); });   // 0 / 0 of a dropped row is 0 too
    ExpectClose("w without epsilon", w, 1e-6);
    Run([&](Device* d, const View& on) { return d->NormalizeRowsBackward(on(raw), 1e-20, 2.5, on(dw), on(draw)); });
    ExpectClose("draw", draw, 5e-6);
    Run([&](Device* d, const View& on) { return d->NormalizeRows(on(raw), 0.1, 1, on(raw)); });   // in place
    ExpectClose("w in place", raw, 1e-6);
  });
}

TEST_P(Gates, AddRowAndAddScaledRows) {
  ForShapes(OddSizes(), kExperts, [&](int64_t T, int64_t E) {
    Operand c = Random({E}), y = Random({T, E}), s = Random({T}), x = Random({T, E});
    Run([&](Device* d, const View& on) { return d->AddRow(on(c), -0.3, on(y)); });
    ExpectClose("y", y, 3e-7);
    Run([&](Device* d, const View& on) { return d->AddScaledRows(on(s), on(x), 0.7, on(y)); });
    ExpectClose("y", y, 5e-7);
  });
}

TEST_P(Gates, MaskRows) {
  ForShapes(OddSizes(), {0, 1, 8, 17}, [&](int64_t T, int64_t E) {
    Operand valid = Ints({T}, RandomInts(T, 0, 3), DType::kU8), y = Random({T, E});
    for (size_t i = 1; i < num_devices() && T > 0 && E > 0; ++i) valid[i].as<uint8_t>()[0] = 0;
    if (T > 0 && E > 0) {
      valid[0].as<uint8_t>()[0] = 0;
      for (size_t i = 0; i < num_devices(); ++i) EXPECT_OK(device(i)->Fill(y[i].Rows(0, 1), NAN));   // NaN of a padding row goes away too
    }
    Run([&](Device* d, const View& on) { return d->MaskRows(on(valid), on(y)); });
    ExpectEqual("y", y);
  });
}

}  // namespace
}  // namespace moe::testing
