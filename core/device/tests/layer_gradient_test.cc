// Backward of matrix products, activations, RMSNorm, embedding, rotary and attention against finite differences.
#include <cmath>

#include "core/device/tests/gradient.h"

namespace moe::testing {
namespace {

class LayerGradient : public GradientTest {};

// The forms by which the model writes the backward of y = x w^T: dx = dy w, dw = dy^T x; and of y = x w.
TEST_F(LayerGradient, GemmForms) {
  const TensorView x = Random({5, 4}), w = Random({3, 4}), c = Random({5, 3}), y = Zeros({5, 3}), dx = Zeros({5, 4}), dw = Zeros({3, 4});
  const auto loss = [&] { Ok(device_->Gemm(false, true, 0.7, x, w, 0, y)); return Dot(c, y); };
  Ok(device_->Gemm(false, false, 0.7, c, w, 0, dx));
  Ok(device_->Gemm(true, false, 0.7, c, x, 0, dw));
  ExpectGradient("dx", loss, x, dx);
  ExpectGradient("dw", loss, w, dw);
  const TensorView wt = Random({4, 3}), dwt = Zeros({4, 3});
  const auto loss_nn = [&] { Ok(device_->Gemm(false, false, 1, x, wt, 0, y)); return Dot(c, y); };
  Ok(device_->Gemm(false, true, 1, c, wt, 0, dx));
  Ok(device_->Gemm(true, false, 1, x, c, 0, dwt));
  ExpectGradient("dx", loss_nn, x, dx);
  ExpectGradient("dw", loss_nn, wt, dwt);
  const TensorView xt = Random({4, 5}), dxt = Zeros({4, 5});   // y = xt^T w^T
  const auto loss_tt = [&] { Ok(device_->Gemm(true, true, 1, xt, w, 0, y)); return Dot(c, y); };
  Ok(device_->Gemm(true, true, 1, w, c, 0, dxt));
  ExpectGradient("dxt", loss_tt, xt, dxt);
}

TEST_F(LayerGradient, GemmAddsToItsGradient) {
  const TensorView x = Random({5, 4}), c = Random({5, 3}), once = Zeros({3, 4}), twice = Zeros({3, 4});
  Ok(device_->Gemm(true, false, 1, c, x, 0, once));
  Ok(device_->Gemm(true, false, 1, c, x, 1, twice));
  Ok(device_->Gemm(true, false, 1, c, x, 1, twice));
  for (int64_t i = 0; i < once.size(); ++i) EXPECT_DOUBLE_EQ(2 * once.as<double>()[i], twice.as<double>()[i]);
}

TEST_F(LayerGradient, GroupedGemmForms) {
  const std::vector<int64_t> offsets = {0, 2, 2, 7};
  const TensorView x = Random({7, 4}), w = Random({3, 5, 4}), c = Random({7, 5}), y = Zeros({7, 5}), dx = Zeros({7, 4}), dw = Zeros({3, 5, 4});
  const auto loss = [&] { Ok(device_->GroupedGemm(GroupedForm::kForward, x, w, offsets, 0, y)); return Dot(c, y); };
  Ok(device_->GroupedGemm(GroupedForm::kInputGrad, c, w, offsets, 0, dx));
  Ok(device_->GroupedGemm(GroupedForm::kWeightGrad, c, x, offsets, 0, dw));
  ExpectGradient("dx", loss, x, dx);
  ExpectGradient("dw", loss, w, dw);
}

TEST_F(LayerGradient, GroupedBias) {
  const std::vector<int64_t> offsets = {0, 2, 2, 7};
  const TensorView b = Random({3, 5}), c = Random({7, 5}), y = Zeros({7, 5}), db = Zeros({3, 5});
  const auto loss = [&] {
    Ok(device_->Fill(y, 0));
    Ok(device_->GroupedBias(b, offsets, y));
    return Dot(c, y);
  };
  Ok(device_->GroupedBiasGrad(c, offsets, db));
  ExpectGradient("db", loss, b, db);
}

TEST_F(LayerGradient, Activations) {
  for (Activation kind : {Activation::kSwiGlu, Activation::kGelu, Activation::kGeluTanh, Activation::kRelu}) {
    SCOPED_TRACE(static_cast<int>(kind));
    const int64_t F = 6, H = F * ActivationInputs(kind);
    const TensorView h = Random({5, H}, 2), c = Random({5, F}), a = Zeros({5, F}), dh = Zeros({5, H});
    // ReLU has no derivative at 0: the inputs keep away from it.
    for (int64_t i = 0; i < h.size(); ++i) h.as<double>()[i] += std::copysign(0.01, h.as<double>()[i]);
    const auto loss = [&] { Ok(device_->ActivationForward(kind, h, a)); return Dot(c, a); };
    Ok(device_->ActivationBackward(kind, h, c, dh));
    ExpectGradient("dh", loss, h, dh);
  }
}

TEST_F(LayerGradient, RmsNorm) {
  const TensorView x = Random({4, 7}, 2), w = Random({7}, 0.5, 1), c = Random({4, 7}), y = Zeros({4, 7}), rstd = Zeros({4}), dx = Zeros({4, 7}), dw = Zeros({7});
  const auto loss = [&] { Ok(device_->RmsNormForward(x, w, 1e-2, y, rstd)); return Dot(c, y); };
  loss();
  Ok(device_->RmsNormBackward(x, w, rstd, c, dx, false, dw));
  ExpectGradient("dx", loss, x, dx);
  ExpectGradient("dw", loss, w, dw);
}

TEST_F(LayerGradient, Embedding) {
  const TensorView ids = Ints({6}, {2, 0, 2, 4, 2, 0}), w = Random({5, 3}), c = Random({6, 3}), y = Zeros({6, 3}), dw = Zeros({5, 3});
  const auto loss = [&] { Ok(device_->EmbeddingForward(ids, w, y)); return Dot(c, y); };
  Ok(device_->EmbeddingBackward(ids, c, dw));
  ExpectGradient("dw", loss, w, dw);
}

TEST_F(LayerGradient, Rotary) {
  const TensorView x = Random({4, 12}), y = Zeros({4, 12}), c = Random({4, 12}), dx = Zeros({4, 12}), pos = Ints({4}, {0, 3, 1, 3}), cosines = Zeros({4, 3}), sines = Zeros({4, 3});
  for (int64_t i = 0; i < 12; ++i) {
    cosines.as<double>()[i] = std::cos(0.7 * static_cast<double>(i));
    sines.as<double>()[i] = std::sin(0.7 * static_cast<double>(i));
  }
  const auto loss = [&] {
    Ok(device_->Copy(x, y));
    Ok(device_->Rotary(y, 6, pos, cosines, sines, false));
    return Dot(c, y);
  };
  Ok(device_->Copy(c, dx));
  Ok(device_->Rotary(dx, 6, pos, cosines, sines, true));
  ExpectGradient("dx", loss, x, dx);
}

TEST_F(LayerGradient, Attention) {
  for (int64_t kv_heads : {1, 2, 4}) {
    AttentionShape s;
    s.batch = 2;
    s.seq = 5;
    s.heads = 4;
    s.kv_heads = kv_heads;
    s.head_dim = 3;
    s.scale = 0.6;
    const int64_t T = 10, qd = 12, kd = kv_heads * 3;
    const TensorView q = Random({T, qd}), k = Random({T, kd}), v = Random({T, kd}), c = Random({T, qd}), o = Zeros({T, qd}), lse = Zeros({2, 4, 5});
    const TensorView dq = Zeros({T, qd}), dk = Zeros({T, kd}), dv = Zeros({T, kd});
    const auto loss = [&] { Ok(device_->AttentionForward(s, q, k, v, o, lse)); return Dot(c, o); };
    loss();
    Ok(device_->AttentionBackward(s, q, k, v, o, lse, c, dq, dk, dv));
    ExpectGradient("dq", loss, q, dq);
    ExpectGradient("dk", loss, k, dk);
    ExpectGradient("dv", loss, v, dv);
  }
}

// Queries 1, 2 and 3 of five positions: the last key is read by none.
TEST_F(LayerGradient, AttentionOverAPartOfTheQueries) {
  for (int64_t kv_heads : {1, 2, 4}) {
    AttentionShape s;
    s.batch = 2;
    s.seq = 5;
    s.heads = 4;
    s.kv_heads = kv_heads;
    s.head_dim = 3;
    s.scale = 0.6;
    s.query_begin = 1;
    s.query_seq = 3;
    const int64_t N = 6, T = 10, qd = 12, kd = kv_heads * 3;
    const TensorView q = Random({N, qd}), k = Random({T, kd}), v = Random({T, kd}), c = Random({N, qd}), o = Zeros({N, qd}), lse = Zeros({2, 4, 3});
    const TensorView dq = Random({N, qd}), dk = Random({T, kd}), dv = Random({T, kd});
    const auto loss = [&] { Ok(device_->AttentionForward(s, q, k, v, o, lse)); return Dot(c, o); };
    loss();
    Ok(device_->AttentionBackward(s, q, k, v, o, lse, c, dq, dk, dv));
    ExpectGradient("dq", loss, q, dq);
    ExpectGradient("dk", loss, k, dk);
    ExpectGradient("dv", loss, v, dv);
  }
}

}  // namespace
}  // namespace moe::testing
