// Cross entropy and the optimizers.
#include <cmath>
#include <limits>

#include "core/device/tests/harness.h"

namespace moe::testing {
namespace {

class Loss : public DeviceTest {};
MOE_INSTANTIATE_DEVICE_TEST(Loss);

TEST_P(Loss, CrossEntropy) {
  ForShapes({0, 1, 2, 3, 7, 17, 33, 100}, {1, 2, 7, 16, 17, 100, 256, 1003}, [&](int64_t T, int64_t V) {
    Operand logits = Random({T, V}, 3), labels = Ints({T}, RandomInts(T, -1, V)), nll = Poison({T});   // some are ignored
    const std::vector<double> before = Got(logits, 1);
    Run([&](Device* d, const View& on) { return d->CrossEntropy(on(logits), on(labels), on(nll), false, 0.5); });   // no gradient wanted: no scale either
    ExpectClose("nll", nll, 2e-6);
    EXPECT_EQ(Got(logits), before);
    nll = Poison({T});
    Run([&](Device* d, const View& on) { return d->CrossEntropy(on(logits), on(labels), on(nll), true, 0.25); });
    ExpectClose("nll", nll, 2e-6);
    ExpectClose("dlogits", logits, 5e-7);
  });
}

TEST_P(Loss, CrossEntropyOfALargeVocabulary) {
  Operand logits = Random({5, 32000}, 5), labels = Ints({5}, {0, 31999, -7, 12345, 16}), nll = Poison({5});
  Run([&](Device* d, const View& on) { return d->CrossEntropy(on(logits), on(labels), on(nll), true, 1); });
  ExpectClose("nll", nll, 2e-6);
  ExpectClose("dlogits", logits, 1e-6);
}

TEST_P(Loss, CrossEntropyOfExtremeLogits) {
  Operand logits = Values({3, 4}, {1e4, -1e4, 0, 9999, -3e38, -3e38, -3e38, -3e38, 1e30, 0, 0, 0}), labels = Ints({3}, {1, 0, 0}), nll = Poison({3});
  Run([&](Device* d, const View& on) { return d->CrossEntropy(on(logits), on(labels), on(nll), true, 1); });
  ExpectClose("nll", nll, 1e-6);
  ExpectClose("dlogits", logits, 1e-6);
}

TEST_P(Loss, CrossEntropyDoesNotHideNotANumber) {
  std::vector<double> values(3 * 20, 0.5);
  values[20 + 18] = NAN;
  values[40 + 3] = NAN;   // in an ignored row: nobody cares
  Operand logits = Values({3, 20}, values), labels = Ints({3}, {4, 4, -1}), nll = Poison({3});
  Run([&](Device* d, const View& on) { return d->CrossEntropy(on(logits), on(labels), on(nll), true, 1); });
  EXPECT_NEAR(Got(nll)[0], std::log(20), 1e-6);
  EXPECT_TRUE(std::isnan(Got(nll)[1]));
  EXPECT_EQ(Got(nll)[2], 0);
  EXPECT_EQ(Got(logits)[43], 0);
}

TEST_P(Loss, LabelsOutsideAreRefused) {
  Operand logits = Random({3, 5}), labels = Ints({3}, {4, 5, 0}), nll = Poison({3});
  ExpectRefused([&](Device* d, const View& on) { return d->CrossEntropy(on(logits), on(labels), on(nll), true, 1); }, {"CrossEntropy", "labels_T", "position 1", "is 5"});
}

TEST_P(Loss, AdamWOverSteps) {
  for (int64_t n : {0, 1, 3, 8, 15, 16, 17, 100, 1000, 20001}) {
    SCOPED_TRACE(absl::StrCat("n ", n, " seed ", seed_));
    Operand p = Random({n}), m = Values({n}, std::vector<double>(n, 0.0)), v = Values({n}, std::vector<double>(n, 0.0));
    AdamWStep s;
    s.lr = 0.01;
    s.weight_decay = 0.1;
    s.grad_scale = 0.7;
    for (s.step = 1; s.step <= 4; ++s.step) {
      Operand g = Random({n});
      Run([&](Device* d, const View& on) { return d->AdamW(s, on(g), on(p), on(m), on(v)); });
    }
    ExpectClose("p", p, 2e-6);
    ExpectClose("m", m, 1e-6);
    ExpectClose("v", v, 1e-6);
  }
}

TEST_P(Loss, AdamWWithZeroAndTinyGradients) {
  Operand p = Values({4}, {1, 1, 1, 1}), m = Values({4}, {0, 0, 0, 0}), v = Values({4}, {0, 0, 0, 0}), g = Values({4}, {0, 1e-12, -1e-4, 1e15});
  AdamWStep s;
  s.lr = 0.1;
  s.eps = 1e-8;
  Run([&](Device* d, const View& on) { return d->AdamW(s, on(g), on(p), on(m), on(v)); });
  ExpectClose("p", p, 2e-6);
  EXPECT_EQ(Got(p)[0], 1);
}

TEST_P(Loss, AdamWLateStep) {
  Operand p = Random({100}), m = Random({100}, 0.01), v = Values({100}, std::vector<double>(100, 1e-4)), g = Random({100}, 0.01);
  AdamWStep s;
  s.lr = 1e-3;
  s.beta2 = 0.999;
  s.step = 100000;
  Run([&](Device* d, const View& on) { return d->AdamW(s, on(g), on(p), on(m), on(v)); });
  ExpectClose("p", p, 1e-6);
}

TEST_P(Loss, Sgd) {
  for (int64_t n : {0, 1, 3, 8, 17, 1000, 20001}) {
    SCOPED_TRACE(absl::StrCat("n ", n, " seed ", seed_));
    Operand p = Random({n}), mom = Random({n}), g = Random({n});
    for (int step = 0; step < 3; ++step) {
      Run([&](Device* d, const View& on) { return d->Sgd(0.1, 0.9, 0.01, 0.5, on(g), on(p), on(mom)); });
      ExpectClose("p", p, 2e-6);
      ExpectClose("momentum", mom, 1e-6);
    }
    Run([&](Device* d, const View& on) { return d->Sgd(0.1, 0, 0.01, 0.5, on(g), on(p), TensorView()); });
    ExpectClose("p without momentum", p, 2e-6);
  }
}

TEST_P(Loss, OptimizersPassNotANumberOn) {
  Operand p = Values({20}, std::vector<double>(20, 1.0)), m = Values({20}, std::vector<double>(20, 0.0)), v = Values({20}, std::vector<double>(20, 0.0));
  std::vector<double> grads(20, 0.1);
  grads[19] = NAN;
  Operand g = Values({20}, grads);
  AdamWStep s;
  s.lr = 0.1;
  Run([&](Device* d, const View& on) { return d->AdamW(s, on(g), on(p), on(m), on(v)); });
  EXPECT_FALSE(std::isnan(Got(p)[18]));
  EXPECT_TRUE(std::isnan(Got(p)[19]));
}

}  // namespace
}  // namespace moe::testing
