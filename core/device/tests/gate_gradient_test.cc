// Backward of gates, combine and cross entropy against finite differences.
#include "core/device/tests/gradient.h"

namespace moe::testing {
namespace {

class GateGradient : public GradientTest {};

TEST_F(GateGradient, Softmax) {
  const TensorView l = Random({4, 6}), c = Random({4, 6}), p = Zeros({4, 6}), dl = Zeros({4, 6});
  const auto loss = [&] { Ok(device_->Softmax(l, p, TensorView())); return Dot(c, p); };
  loss();
  Ok(device_->SoftmaxBackward(p, c, dl));
  ExpectGradient("dl", loss, l, dl);
}

// The gradient of sum_t c_t lse_t^2 is 2 c lse softmax, which gates build with AddScaledRows (z-loss).
TEST_F(GateGradient, LogSumExp) {
  const TensorView l = Random({4, 6}), p = Zeros({4, 6}), lse = Zeros({4}), dl = Zeros({4, 6});
  const auto loss = [&] { Ok(device_->Softmax(l, p, lse)); return Dot(lse, lse); };
  loss();
  Ok(device_->AddScaledRows(lse, p, 2, dl));
  ExpectGradient("dl", loss, l, dl);
}

TEST_F(GateGradient, Columns) {
  const TensorView p = Random({4, 5}), ids = Ints({4, 2}, {0, 4, -1, 2, 3, 1, -1, -1}), c = Random({4, 2}), w = Zeros({4, 2}), dp = Zeros({4, 5});
  const auto loss = [&] { Ok(device_->GatherColumns(p, ids, w)); return Dot(c, w); };
  Ok(device_->ScatterColumns(c, ids, dp));
  ExpectGradient("dp", loss, p, dp);
}

TEST_F(GateGradient, NormalizeRows) {
  const TensorView raw = Random({5, 3}, 0.1, 0.6), c = Random({5, 3}), w = Zeros({5, 3}), draw = Zeros({5, 3});
  const auto loss = [&] { Ok(device_->NormalizeRows(raw, 0.05, 2.5, w)); return Dot(c, w); };
  Ok(device_->NormalizeRowsBackward(raw, 0.05, 2.5, c, draw));
  ExpectGradient("draw", loss, raw, draw);
}

TEST_F(GateGradient, ColumnSumAndAddRow) {
  const TensorView x = Random({5, 3}), c = Random({3}), sum = Zeros({3}), dx = Zeros({5, 3});
  const auto loss = [&] { Ok(device_->ColumnSum(x, sum, false)); return Dot(c, sum); };
  Ok(device_->AddRow(c, 1, dx));
  ExpectGradient("dx", loss, x, dx);
}

TEST_F(GateGradient, Combine) {
  // Five of six slots are used, in a mixed order.
  const TensorView pos = Ints({3, 2}, {3, 0, -1, 4, 2, 1}), rows = Random({5, 4}), w = Random({3, 2}), c = Random({3, 4}), y = Zeros({3, 4});
  const TensorView drows = Zeros({5, 4}), dw = Zeros({3, 2});
  const auto loss = [&] { Ok(device_->Combine(rows, pos, w, y, false)); return Dot(c, y); };
  Ok(device_->CombineBackward(rows, pos, w, c, drows, dw));
  ExpectGradient("drows", loss, rows, drows);
  ExpectGradient("dw", loss, w, dw);
}

// Dispatch is the transpose of combine: the gradient of GatherRows(x, token_N) is Combine without weights.
TEST_F(GateGradient, GatherRows) {
  const TensorView pos = Ints({3, 2}, {3, 0, -1, 4, 2, 1}), token = Ints({5}, {0, 2, 2, 0, 1}), x = Random({3, 4}), c = Random({5, 4}), y = Zeros({5, 4}), dx = Zeros({3, 4});
  const auto loss = [&] { Ok(device_->GatherRows(x, token, y)); return Dot(c, y); };
  Ok(device_->Combine(c, pos, TensorView(), dx, false));
  ExpectGradient("dx", loss, x, dx);
}

TEST_F(GateGradient, CrossEntropy) {
  const TensorView logits = Random({4, 6}), work = Zeros({4, 6}), labels = Ints({4}, {5, -1, 0, 2}), nll = Zeros({4}), dlogits = Zeros({4, 6});
  const auto loss = [&] {
    Ok(device_->Copy(logits, work));
    Ok(device_->CrossEntropy(work, labels, nll, false, 1));
    absl::StatusOr<double> sum = device_->Sum(nll);
    EXPECT_TRUE(sum.ok());
    return 0.3 * *sum;
  };
  Ok(device_->Copy(logits, dlogits));
  Ok(device_->CrossEntropy(dlogits, labels, nll, true, 0.3));
  ExpectGradient("dlogits", loss, logits, dlogits);
}

}  // namespace
}  // namespace moe::testing
