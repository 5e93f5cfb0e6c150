// Activations, RMSNorm, embedding, rotary.
#include <cmath>

#include "core/device/tests/harness.h"

namespace moe::testing {
namespace {

class Layer : public DeviceTest {};
MOE_INSTANTIATE_DEVICE_TEST(Layer);

const std::vector<Activation> kActivations = {Activation::kSwiGlu, Activation::kGelu, Activation::kGeluTanh, Activation::kRelu};

TEST_P(Layer, Activations) {
  for (Activation kind : kActivations) {
    SCOPED_TRACE(absl::StrCat("activation ", static_cast<int>(kind)));
    ForShapes(OddSizes(), {0, 1, 3, 8, 17, 64}, [&](int64_t R, int64_t F) {
      Operand h = Random({R, F * ActivationInputs(kind)}, 3), da = Random({R, F}), a = Poison({R, F}), dh = Poison({R, F * ActivationInputs(kind)});
      Run([&](Device* d, const View& on) { return d->ActivationForward(kind, on(h), on(a)); });
      ExpectClose("a", a, 2e-6);
      Run([&](Device* d, const View& on) { return d->ActivationBackward(kind, on(h), on(da), on(dh)); });
      ExpectClose("dh", dh, 3e-6);
      Run([&](Device* d, const View& on) { return d->ActivationBackward(kind, on(h), on(da), on(h)); });   // in place
      ExpectClose("dh in place", h, 3e-6);
    });
  }
}

// Far from 0 the curves are flat: exactly 0 or x, and no overflow of an exponential on the way.
TEST_P(Layer, ActivationsFarFromZero) {
  const std::vector<double> x = {-1e30, -1000, -200, -100, -90, -88, -30, -10, 0, 10, 30, 88, 90, 100, 200, 1000, 1e30};
  const int64_t n = static_cast<int64_t>(x.size());
  for (Activation kind : kActivations) {
    SCOPED_TRACE(absl::StrCat("activation ", static_cast<int>(kind)));
    std::vector<double> both = x;
    if (kind == Activation::kSwiGlu) both.insert(both.end(), n, 1.0);
    Operand h = Values({1, static_cast<int64_t>(both.size())}, both), a = Poison({1, n}), da = Values({1, n}, std::vector<double>(n, 1.0));
    Run([&](Device* d, const View& on) { return d->ActivationForward(kind, on(h), on(a)); });
    ExpectClose("a", a, 2e-6);
    Run([&](Device* d, const View& on) { return d->ActivationBackward(kind, on(h), on(da), on(h)); });
    ExpectClose("dh", h, 3e-6);
  }
}

TEST_P(Layer, RmsNormForward) {
  ForShapes(OddSizes(), {1, 3, 8, 17, 64, 100, 256}, [&](int64_t T, int64_t D) {
    Operand x = Random({T, D}, 2), w = Random({D}, 0.5, 1), y = Poison({T, D}), rstd = Poison({T});
    Run([&](Device* d, const View& on) { return d->RmsNormForward(on(x), on(w), 1e-5, on(y), on(rstd)); });
    ExpectClose("y", y, 1e-6);
    ExpectClose("rstd", rstd, 1e-6);
  });
}

TEST_P(Layer, RmsNormOfZerosIsZero) {
  Operand x = Values({3, 20}, std::vector<double>(60, 0.0)), w = Random({20}), y = Poison({3, 20}), rstd = Poison({3});
  Run([&](Device* d, const View& on) { return d->RmsNormForward(on(x), on(w), 1e-6, on(y), on(rstd)); });
  ExpectEqual("y", y);
  ExpectClose("rstd", rstd, 1e-6);
}

TEST_P(Layer, RmsNormBackward) {
  for (bool accumulate : {false, true}) {
    SCOPED_TRACE(absl::StrCat("accumulate ", accumulate));
    ForShapes(OddSizes(), {1, 3, 8, 17, 64, 100, 256}, [&](int64_t T, int64_t D) {
      // One column: dx is what the difference of two nearly equal numbers times 1 / |x| leaves, so |x| is kept from 0.
      Operand x = D == 1 ? Random({T, D}, 0.5, 4) : Random({T, D}, 2);
      Operand w = Random({D}, 0.5, 1), y = Poison({T, D}), rstd = Poison({T}), dy = Random({T, D}), dw = Random({D});
      Operand dx = accumulate ? Random({T, D}) : Poison({T, D});
      Run([&](Device* d, const View& on) { return d->RmsNormForward(on(x), on(w), 1e-5, on(y), on(rstd)); });
      Run([&](Device* d, const View& on) { return d->RmsNormBackward(on(x), on(w), on(rstd), on(dy), on(dx), accumulate, on(dw)); });
      ExpectClose("dx", dx, 3e-6);
      ExpectClose("dw", dw, 1e-5);
    });
  }
}

TEST_P(Layer, Embedding) {
  ForShapes(OddSizes(), {1, 7, 16, 65}, [&](int64_t T, int64_t D) {
    const int64_t V = 9;   // few words: many tokens meet in one row of the gradient
    Operand ids = Ints({T}, RandomInts(T, 0, V)), w = Random({V, D}), y = Poison({T, D}), dy = Random({T, D}), dw = Random({V, D});
    Run([&](Device* d, const View& on) { return d->EmbeddingForward(on(ids), on(w), on(y)); });
    ExpectEqual("y", y);
    Run([&](Device* d, const View& on) { return d->EmbeddingBackward(on(ids), on(dy), on(dw)); });
    ExpectClose("dw", dw, 1e-5);
  });
}

TEST_P(Layer, EmbeddingIdsOutsideAreRefused) {
  for (int64_t bad : {-1, 9, 1 << 30}) {
    Operand ids = Ints({5}, {0, 1, 8, bad, 2}), w = Random({9, 4}), y = Poison({5, 4});
    const std::vector<std::string> parts = {"ids_T", "position 3", absl::StrCat(bad), "[0, 9)"};
    ExpectRefused([&](Device* d, const View& on) { return d->EmbeddingForward(on(ids), on(w), on(y)); }, parts);
    ExpectRefused([&](Device* d, const View& on) { return d->EmbeddingBackward(on(ids), on(y), on(w)); }, parts);
  }
}

TEST_P(Layer, Rotary) {
  for (int64_t head_dim : {2, 6, 16, 34, 64}) {
    ForShapes(OddSizes(), {1, 3}, [&](int64_t T, int64_t heads) {
      const int64_t P = 40, C = head_dim / 2;
      std::vector<double> cosines, sines;
      for (int64_t i = 0; i < P * C; ++i) {
        const double angle = 6.28 * Uniform();
        cosines.push_back(std::cos(angle));
        sines.push_back(std::sin(angle));
      }
      Operand x = Random({T, heads * head_dim}), pos = Ints({T}, RandomInts(T, 0, P)), c = Values({P, C}, cosines), s = Values({P, C}, sines);
      const std::vector<double> before = Got(x, 1);
      Run([&](Device* d, const View& on) { return d->Rotary(on(x), head_dim, on(pos), on(c), on(s), false); });
      ExpectClose("x", x, 1e-6);
      Run([&](Device* d, const View& on) { return d->Rotary(on(x), head_dim, on(pos), on(c), on(s), true); });
      ExpectClose("x turned back", x, 1e-6);
      const std::vector<double> after = Got(x, 1);
      for (size_t i = 0; i < after.size(); ++i) ASSERT_NEAR(after[i], before[i], 1e-5);
    });
  }
}

TEST_P(Layer, RotaryPositionsOutsideAreRefused) {
  Operand x = Random({3, 8}), c = Random({4, 2}), s = Random({4, 2}), pos = Ints({3}, {0, 4, 1});
  ExpectRefused([&](Device* d, const View& on) { return d->Rotary(on(x), 4, on(pos), on(c), on(s), false); }, {"Rotary", "positions_T", "position 1", "[0, 4)"});
}

TEST_P(Layer, NotANumberIsNotHidden) {
  std::vector<double> values(40, 0.5);
  values[25] = NAN;   // row 1
  Operand x = Values({2, 20}, values), w = Random({20}), y = Poison({2, 20}), rstd = Poison({2});
  Run([&](Device* d, const View& on) { return d->RmsNormForward(on(x), on(w), 1e-6, on(y), on(rstd)); });
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_FALSE(std::isnan(Got(y)[i])) << i;
    EXPECT_TRUE(std::isnan(Got(y)[20 + i])) << i;
  }
  for (Activation kind : kActivations) {
    Operand a = Values({2, 20 / ActivationInputs(kind)}, std::vector<double>(40 / ActivationInputs(kind), 0.0));
    Run([&](Device* d, const View& on) { return d->ActivationForward(kind, on(x), on(a)); });
    for (size_t i = 1; i < num_devices(); ++i) EXPECT_TRUE(std::isnan(Got(a, i)[20 / ActivationInputs(kind) + 5])) << "activation " << static_cast<int>(kind);
  }
}

}  // namespace
}  // namespace moe::testing
