// The reference against numbers worked out by hand or with Python's math module: everything else is compared with the
// reference, so it needs a judge of its own.
#include "core/device/reference/reference_device.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace moe {
namespace {

class Reference : public ::testing::Test {
 protected:
  void Ok(const absl::Status& s) { ASSERT_TRUE(s.ok()) << s; }
  void Near(const std::vector<double>& got, const std::vector<double>& wanted, double tol = 1e-12) {
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], tol) << i;
  }
  static TensorView F64(std::vector<double>& v, std::vector<int64_t> shape) { return TensorView(v.data(), DType::kF64, shape); }
  static TensorView I32(std::vector<int32_t>& v, std::vector<int64_t> shape) { return TensorView(v.data(), DType::kI32, shape); }
  ReferenceDevice d;
};

TEST_F(Reference, Gemm) {
  std::vector<double> a = {1, 2, 3, 4, 5, 6}, b = {1, -1, 2, 0, 1, 3}, at = {1, 4, 2, 5, 3, 6}, bt = {1, 2, 1, -1, 0, 3}, c(4);
  const std::vector<double> product = {8, 8, 20, 14};   // [[1,2,3],[4,5,6]] [[1,-1],[2,0],[1,3]]
  Ok(d.Gemm(false, false, 1, F64(a, {2, 3}), F64(b, {3, 2}), 0, F64(c, {2, 2})));
  Near(c, product);
  Ok(d.Gemm(true, false, 1, F64(at, {3, 2}), F64(b, {3, 2}), 0, F64(c, {2, 2})));
  Near(c, product);
  Ok(d.Gemm(false, true, 1, F64(a, {2, 3}), F64(bt, {2, 3}), 0, F64(c, {2, 2})));
  Near(c, product);
  Ok(d.Gemm(true, true, 2, F64(at, {3, 2}), F64(bt, {2, 3}), -1, F64(c, {2, 2})));
  Near(c, product);
}

TEST_F(Reference, GroupedGemm) {
  std::vector<double> x = {1, 2, 3, 4, 5, 6}, w = {1, 1, 1, -1, 10, 0, 0, 10, 7, 7, 7, 7}, y(6), dx(6), dw(12);
  const std::vector<int64_t> offsets = {0, 1, 3, 3};
  Ok(d.GroupedGemm(GroupedForm::kForward, F64(x, {3, 2}), F64(w, {3, 2, 2}), offsets, 0, F64(y, {3, 2})));
  Near(y, {3, -1, 30, 40, 50, 60});
  Ok(d.GroupedGemm(GroupedForm::kInputGrad, F64(x, {3, 2}), F64(w, {3, 2, 2}), offsets, 0, F64(dx, {3, 2})));
  Near(dx, {3, -1, 30, 40, 50, 60});
  Ok(d.GroupedGemm(GroupedForm::kWeightGrad, F64(y, {3, 2}), F64(x, {3, 2}), offsets, 0, F64(dw, {3, 2, 2})));
  Near(dw, {3, 6, -1, -2, 30 * 3 + 50 * 5, 30 * 4 + 50 * 6, 40 * 3 + 60 * 5, 40 * 4 + 60 * 6, 0, 0, 0, 0});
}

TEST_F(Reference, Activations) {
  std::vector<double> h = {1, -0.5}, a(2), hs = {1, -0.5, 2, 4};
  Ok(d.ActivationForward(Activation::kGelu, F64(h, {1, 2}), F64(a, {1, 2})));
  Near(a, {0.8413447460685429, -0.15426876936299344});
  Ok(d.ActivationForward(Activation::kGeluTanh, F64(h, {1, 2}), F64(a, {1, 2})));
  Near(a, {0.8411919906082768, -0.15428599017485606});
  Ok(d.ActivationForward(Activation::kRelu, F64(h, {1, 2}), F64(a, {1, 2})));
  Near(a, {1, 0});
  Ok(d.ActivationForward(Activation::kSwiGlu, F64(hs, {1, 4}), F64(a, {1, 2})));   // gate first, then up
  Near(a, {2 * 0.7310585786300049, 4 * -0.1887703343990727});
}

TEST_F(Reference, RmsNorm) {
  std::vector<double> x = {3, 4}, w = {1, 2}, y(2), rstd(1);
  Ok(d.RmsNormForward(F64(x, {1, 2}), F64(w, {2}), 3.5, F64(y, {1, 2}), F64(rstd, {1})));   // mean square 12.5
  Near(y, {0.75, 2});
  Near(rstd, {0.25});
}

TEST_F(Reference, RotaryTurnsThePairsOfAHalf) {
  std::vector<double> x = {1, 2, 3, 4}, cosines = {1, 1, 0, 0.6}, sines = {0, 0, 1, 0.8};
  std::vector<int32_t> pos = {1};
  Ok(d.Rotary(F64(x, {1, 4}), 4, I32(pos, {1}), F64(cosines, {2, 2}), F64(sines, {2, 2}), false));
  Near(x, {-3, 2 * 0.6 - 4 * 0.8, 1, 4 * 0.6 + 2 * 0.8});
}

TEST_F(Reference, AttentionIsCausalAndGrouped) {
  AttentionShape s;
  s.batch = 1;
  s.seq = 2;
  s.heads = 2;
  s.kv_heads = 1;
  s.head_dim = 1;
  s.scale = 0.5;
  // Head 0 asks with 0 (equal weights), head 1 with 2 ln 3: weights of keys 0 and 1 are 1 : 3.
  std::vector<double> q = {0, 0, 0, 2 * std::log(3.0)}, k = {0, 1}, v = {4, 8}, o(4), lse(4);
  Ok(d.AttentionForward(s, F64(q, {2, 2}), F64(k, {2, 1}), F64(v, {2, 1}), F64(o, {2, 2}), F64(lse, {1, 2, 2})));
  Near(o, {4, 4, 6, 7});
  Near(lse, {0, std::log(2.0), 0, std::log(4.0)});
}

// The chain of a gate on three rows of logits of four experts, two of them chosen.
TEST_F(Reference, Routing) {
  std::vector<double> l = {2, 1, 0, -1, .5, .5, -.5, 3, -1, .25, .75, 0}, p(12), lse(3), raw(6), w(6);
  std::vector<int32_t> ids(6);
  Ok(d.Softmax(F64(l, {3, 4}), F64(p, {3, 4}), F64(lse, {3})));
  Near(p, {.643914, .236883, .087144, .032059, .068727, .068727, .025283, .837263, .077141, .269250, .443917, .209692}, 1e-6);
  Ok(d.TopK(F64(p, {3, 4}), I32(ids, {3, 2})));
  EXPECT_EQ(ids, (std::vector<int32_t>{0, 1, 3, 0, 2, 1}));
  Ok(d.GatherColumns(F64(p, {3, 4}), I32(ids, {3, 2}), F64(raw, {3, 2})));
  Ok(d.NormalizeRows(F64(raw, {3, 2}), 0, 1, F64(w, {3, 2})));
  Near(w, {.731059, .268941, .924142, .075858, .622459, .377541}, 1e-6);
  double z = 0;
  for (double v : lse) z += v * v / 3;
  EXPECT_NEAR(z, 6.163994, 1e-6);
}

TEST_F(Reference, Combine) {
  std::vector<double> rows = {1, 2, 10, 20, 100, 200}, w = {1, 2, 3, 4}, y(4, 1000), drows(6), dw(4), dy = {1, 1, 2, 0};
  std::vector<int32_t> pos = {2, 0, -1, 1};
  Ok(d.Combine(F64(rows, {3, 2}), I32(pos, {2, 2}), F64(w, {2, 2}), F64(y, {2, 2}), false));
  Near(y, {102, 204, 40, 80});
  Ok(d.Combine(F64(rows, {3, 2}), I32(pos, {2, 2}), TensorView(), F64(y, {2, 2}), true));
  Near(y, {203, 406, 50, 100});
  Ok(d.CombineBackward(F64(rows, {3, 2}), I32(pos, {2, 2}), F64(w, {2, 2}), F64(dy, {2, 2}), F64(drows, {3, 2}), F64(dw, {2, 2})));
  Near(drows, {2, 2, 8, 0, 1, 1});
  Near(dw, {300, 3, 0, 20});
}

TEST_F(Reference, CrossEntropy) {
  std::vector<double> logits = {0, std::log(3.0), 5, 5}, nll(2);
  std::vector<int32_t> labels = {1, -1};
  Ok(d.CrossEntropy(F64(logits, {2, 2}), I32(labels, {2}), F64(nll, {2}), true, 2));
  Near(nll, {std::log(4.0 / 3), 0});
  Near(logits, {0.5, -0.5, 0, 0});
}

TEST_F(Reference, AdamW) {
  std::vector<double> p = {2}, g = {8}, m = {1}, v = {4};
  AdamWStep s;
  s.lr = 0.5;
  s.beta1 = 0.5;
  s.beta2 = 0.75;
  s.eps = 1;
  s.weight_decay = 0.25;
  s.step = 2;
  s.grad_scale = 0.5;   // g' = 4: m = 2.5, v = 7; corrections 3/4 and 7/16: m^ = 10/3, v^ = 16
  Ok(d.AdamW(s, F64(g, {1}), F64(p, {1}), F64(m, {1}), F64(v, {1})));
  Near(m, {2.5});
  Near(v, {7});
  Near(p, {2 - 0.5 * (10.0 / 3 / 5 + 0.5)});
}

TEST_F(Reference, Sgd) {
  std::vector<double> p = {2}, g = {8}, m = {1};
  Ok(d.Sgd(0.5, 0.75, 0.25, 0.5, F64(g, {1}), F64(p, {1}), F64(m, {1})));
  Near(m, {4.75});
  Near(p, {2 - 0.5 * (4.75 + 0.5)});
}

TEST_F(Reference, PeakIsMeasured) {
  const absl::StatusOr<double> gflops = d.MeasurePeakGflops();
  ASSERT_TRUE(gflops.ok());
  EXPECT_GT(*gflops, 0.01);
  EXPECT_LT(*gflops, 1e4);
}

}  // namespace
}  // namespace moe
