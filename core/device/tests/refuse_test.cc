// Wrong shapes and dtypes: INVALID_ARGUMENT that names the operation, the operand, its shape and the wanted one, in the
// same words on every device. (Values outside, of ids and labels, are tested beside each operation.)
#include "core/device/tests/harness.h"

namespace moe::testing {
namespace {

class Refuse : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    a43 = Random({4, 3});
    b45 = Random({4, 5});
    v3 = Random({3});
    v4 = Random({4});
    v5 = Random({5});
    ids4 = Ints({4}, {0, 1, 2, 0});
    ids42 = Ints({4, 2}, {0, 1, 2, 0, 0, 1, 2, 0});
    w43 = Random({2, 4, 3});
  }
  using Op = std::function<absl::Status(Device*, const View&)>;
  Operand a43, b45, v3, v4, v5, ids4, ids42, w43;
};
MOE_INSTANTIATE_DEVICE_TEST(Refuse);

TEST_P(Refuse, WrongShapes) {
  const std::vector<int64_t> offsets = {0, 1, 4};
  const std::string s43 = "float32[4,3]", s45 = "float32[4,5]";
  const std::vector<std::pair<Op, std::vector<std::string>>> cases = {
      {[&](Device* d, const View& on) { return d->Copy(on(a43), on(b45)); }, {"Copy", "y", s45, "[4,3]"}},
      {[&](Device* d, const View& on) { return d->Axpy(1, on(a43), on(v3)); }, {"Axpy", "y", "float32[3]", s43}},
      {[&](Device* d, const View& on) { return d->Multiply(on(a43), on(b45), on(a43)); }, {"Multiply", "b", s45, "[4,3]"}},
      {[&](Device* d, const View& on) { return d->RandomUniform(on(ids4), 1, 0, 0, 1); }, {"RandomUniform", "y is int32[4]"}},
      {[&](Device* d, const View& on) { return d->ColumnSum(on(a43), on(v4), false); }, {"ColumnSum", "sum_E", "float32[4]", "float32[3]", s43}},
      {[&](Device* d, const View& on) { return d->Gemm(false, false, 1, on(a43), on(b45), 0, on(b45)); }, {"Gemm", "b", s45, "float32[3,5]", s43}},
      {[&](Device* d, const View& on) { return d->Gemm(true, false, 1, on(a43), on(b45), 0, on(b45)); }, {"Gemm", "c", s45, "float32[3,5]", s43}},
      {[&](Device* d, const View& on) { return d->GroupedGemm(GroupedForm::kForward, on(b45), on(w43), offsets, 0, on(a43)); }, {"GroupedGemm", "x_RI", s45, "float32[4,3]"}},
      {[&](Device* d, const View& on) { return d->GroupedGemm(GroupedForm::kInputGrad, on(a43), on(w43), offsets, 0, on(a43)); }, {"GroupedGemm", "dy_RO", s43, "float32[4,4]"}},
      {[&](Device* d, const View& on) { return d->GroupedGemm(GroupedForm::kWeightGrad, on(a43), on(a43), offsets, 0, on(w43)); }, {"GroupedGemm", "dy_RO", s43}},
      {[&](Device* d, const View& on) { return d->GroupedBias(on(b45), offsets, on(a43)); }, {"GroupedBias", "b_eO", s45}},
      {[&](Device* d, const View& on) { return d->GroupedBiasGrad(on(a43), offsets, on(b45)); }, {"GroupedBiasGrad", "db_eO", s45}},
      {[&](Device* d, const View& on) { return d->ActivationForward(Activation::kSwiGlu, on(a43), on(a43)); }, {"ActivationForward", "h_RH", s43, "multiple of 2"}},
      {[&](Device* d, const View& on) { return d->ActivationForward(Activation::kGelu, on(a43), on(b45)); }, {"ActivationForward", "a_RF", s45, s43}},
      {[&](Device* d, const View& on) { return d->ActivationBackward(Activation::kGelu, on(a43), on(a43), on(b45)); }, {"ActivationBackward", "dh_RH", s45}},
      {[&](Device* d, const View& on) { return d->RmsNormForward(on(a43), on(v4), 1e-5, on(a43), on(v4)); }, {"RmsNormForward", "w_D", "float32[4]", "float32[3]", s43}},
      {[&](Device* d, const View& on) { return d->RmsNormBackward(on(a43), on(v3), on(v3), on(a43), on(a43), true, on(v3)); }, {"RmsNormBackward", "rstd_T", "float32[3]", "float32[4]"}},
      {[&](Device* d, const View& on) { return d->EmbeddingForward(on(ids4), on(b45), on(a43)); }, {"EmbeddingForward", "w_VD", s45}},
      {[&](Device* d, const View& on) { return d->EmbeddingBackward(on(v4), on(b45), on(a43)); }, {"EmbeddingBackward", "ids_T", "float32[4]", "int32[4]"}},
      {[&](Device* d, const View& on) { return d->Rotary(on(a43), 2, on(ids4), on(a43), on(a43), false); }, {"Rotary", "x_TQ", s43, "multiple of head_dim 2"}},
      {[&](Device* d, const View& on) { return d->Rotary(on(a43), 3, on(ids4), on(a43), on(a43), false); }, {"Rotary", "head_dim is 3"}},
      {[&](Device* d, const View& on) { return d->Softmax(on(a43), on(b45), TensorView()); }, {"Softmax", "p_TE", s45}},
      {[&](Device* d, const View& on) { return d->Softmax(on(a43), on(a43), on(v3)); }, {"Softmax", "lse_T", "float32[3]", "float32[4]"}},
      {[&](Device* d, const View& on) { return d->SoftmaxBackward(on(a43), on(a43), on(b45)); }, {"SoftmaxBackward", "dl_TE", s45}},
      {[&](Device* d, const View& on) { return d->TopK(on(a43), on(a43)); }, {"TopK", "ids_TK", s43, "int32[4,3]"}},
      {[&](Device* d, const View& on) { return d->TopK(on(v4), on(ids42)); }, {"TopK", "s_TE", "float32[4]", "2 dimensions"}},
      {[&](Device* d, const View& on) { return d->GatherColumns(on(a43), on(ids42), on(a43)); }, {"GatherColumns", "w_TK", s43, "float32[4,2]"}},
      {[&](Device* d, const View& on) { return d->ScatterColumns(on(a43), on(ids42), on(a43)); }, {"ScatterColumns", "ids_TK", "int32[4,2]", "int32[4,3]"}},
      {[&](Device* d, const View& on) { return d->NormalizeRows(on(a43), 0, 1, on(b45)); }, {"NormalizeRows", "w_TK", s45}},
      {[&](Device* d, const View& on) { return d->NormalizeRowsBackward(on(a43), 0, 1, on(b45), on(a43)); }, {"NormalizeRowsBackward", "dw_TK", s45}},
      {[&](Device* d, const View& on) { return d->AddRow(on(v4), 1, on(a43)); }, {"AddRow", "c_E", "float32[4]", "float32[3]"}},
      {[&](Device* d, const View& on) { return d->AddScaledRows(on(v3), on(a43), 1, on(a43)); }, {"AddScaledRows", "s_T", "float32[3]", "float32[4]"}},
      {[&](Device* d, const View& on) { return d->MaskRows(on(ids4), on(a43)); }, {"MaskRows", "valid_T", "int32[4]", "uint8[4]"}},
      {[&](Device* d, const View& on) { return d->GatherRows(on(a43), on(ids4), on(b45)); }, {"GatherRows", "y_ND", s45, s43}},
      {[&](Device* d, const View& on) { return d->Combine(on(a43), on(ids42), on(a43), on(a43), false); }, {"Combine", "w_TK", s43, "float32[4,2]"}},
      {[&](Device* d, const View& on) { return d->CombineBackward(on(a43), on(ids42), TensorView(), on(a43), on(a43), on(a43)); }, {"CombineBackward", "w_TK", "absent"}},
      {[&](Device* d, const View& on) { return d->CrossEntropy(on(a43), on(ids4), on(v3), false, 1); }, {"CrossEntropy", "nll_T", "float32[3]", "float32[4]"}},
      {[&](Device* d, const View& on) { return d->AdamW(AdamWStep(), on(v4), on(v4), on(v3), on(v4)); }, {"AdamW", "m", "float32[3]", "[4]"}},
      {[&](Device* d, const View& on) { return d->Sgd(1, 0, 0, 1, on(v4), on(v4), on(v5)); }, {"Sgd", "momentum", "float32[5]", "[4]"}},
      {[&](Device* d, const View&) { return d->Sum(TensorView()).status(); }, {"Sum", "x is absent"}},
      {[&](Device* d, const View& on) { return d->SumSquares(on(ids4)).status(); }, {"SumSquares", "x is int32[4]", "wanted float32"}},
      {[&](Device* d, const View& on) { return d->MaxAbs(on(ids4)).status(); }, {"MaxAbs", "x is int32[4]", "wanted float32"}},
      {[&](Device* d, const View& on) { return d->Scale(on(ids4), 2); }, {"Scale", "y is int32[4]"}},
  };
  for (const auto& [op, parts] : cases) ExpectRefused(op, parts);
}

TEST_P(Refuse, WrongOffsets) {
  Operand dy = Random({4, 4});
  const std::vector<std::pair<std::vector<int64_t>, std::string>> cases = {
      {{}, "0 entries"}, {{0, 4}, "2 entries"}, {{1, 2, 4}, "offsets[0] is 1"}, {{0, 3, 2}, "below"}, {{0, 1, 3}, "is 3, wanted 4"}, {{0, 1, 5}, "is 5, wanted 4"}};
  for (const auto& c : cases) {
    const std::vector<int64_t>& offsets = c.first;
    const std::string& text = c.second;
    ExpectRefused([&](Device* d, const View& on) { return d->GroupedGemm(GroupedForm::kForward, on(a43), on(w43), offsets, 0, on(dy)); }, {"GroupedGemm", text});
    ExpectRefused([&](Device* d, const View& on) { return d->GroupedBiasGrad(on(dy), offsets, on(dy).Rows(0, 2)); }, {"GroupedBiasGrad", text});
  }
}

TEST_P(Refuse, OtherDtypeThanTheLead) {
  for (size_t i = 0; i < num_devices(); ++i) {
    const DType other = a43[i].dtype() == DType::kF32 ? DType::kF64 : DType::kF32;
    std::vector<double> memory(12);
    const TensorView z(memory.data(), other, {4, 3});
    const absl::Status s = device(i)->Axpy(1, a43[i], z);
    EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument) << s;
    EXPECT_NE(s.message().find(z.DebugString()), std::string::npos) << s;
    EXPECT_NE(s.message().find(a43[i].DebugString()), std::string::npos) << s;
  }
}

TEST_P(Refuse, PaddedOptimizerState) {
  pad_ = 1;
  Operand g = Random({4, 3});
  ExpectRefused([&](Device* d, const View& on) { return d->AdamW(AdamWStep(), on(g), on(g), on(g), on(g)); }, {"AdamW", "g", "contiguous"});
}

}  // namespace
}  // namespace moe::testing
