// The gates alone against tests/golden/layer: logits, ids, weights, and the gradients of the balancing and z losses, which
// autograd computed there without any of our formulas.
#include "experts/registry.h"
#include "gtest/gtest.h"
#include "tests/golden/layer_case.h"

namespace moe::testing {
namespace {

class LayerGateTest : public ::testing::TestWithParam<std::tuple<const char*, Machine>> {
 protected:
  void SetUp() override {
    auto c = LoadLayerCase(std::get<0>(GetParam()));
    ASSERT_OK(c.status());
    case_ = *std::move(c);
    machine_ = ForCase(std::get<1>(GetParam()), case_);
    auto d = machine().make();
    ASSERT_OK(d.status());
    device_ = *std::move(d);
    arena_ = std::make_unique<Arena>(device_.get());
    store_ = std::make_unique<ParamStore>(device_.get(), machine().dtype);
    GateSpec spec;
    spec.d_model = case_.D;
    spec.num_global_experts = case_.E;
    spec.top_k = case_.K;
    spec.config = case_.gate_config();
    auto gate = MakeDefaultRegistry()->MakeGate(spec);
    ASSERT_OK(gate.status());
    gate_ = *std::move(gate);
    ASSERT_OK(gate_->DeclareParams(store_.get(), "gate"));
    ASSERT_OK(store_->Materialize(1));
    ASSERT_OK(Put(device_.get(), case_.real.at("router_ED"), router().value));
    x_ = Tensor({case_.T, case_.D}, case_.real.at("x_TD"));
    if (case_.has_padding()) {
      valid_ = *arena_->Make(DType::kU8, {case_.T});
      const std::vector<uint8_t> flags = case_.valid_T();
      ASSERT_OK(device_->CopyFromHost(valid_, flags.data()));
    }
    ctx_.device = device_.get();
    ctx_.arena = arena_.get();
    ctx_.training = true;
  }
  const Machine& machine() const { return machine_; }
  Param& router() { return store_->params().front(); }
  TensorView Tensor(const std::vector<int64_t>& shape, const std::vector<double>& values) {
    const TensorView t = *arena_->Make(machine().dtype, shape);
    EXPECT_TRUE(Put(device_.get(), values, t).ok());
    return t;
  }
  // Of the valid tokens; what padded rows hold is of no consequence.
  template <typename V>
  std::vector<V> ValidRows(const std::vector<V>& rows) const {
    const int64_t width = static_cast<int64_t>(rows.size()) / case_.T;
    std::vector<V> out;
    for (int64_t t = 0; t < case_.T; ++t)
      if (case_.valid(t)) out.insert(out.end(), rows.begin() + t * width, rows.begin() + (t + 1) * width);
    return out;
  }
  std::vector<double> Values(In t) { return *ToHostDoubles(device_.get(), t); }

  LayerCase case_;
  Machine machine_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<ParamStore> store_;
  std::unique_ptr<Gate> gate_;
  TensorView x_, valid_;
  ModuleContext ctx_;
};

TEST_P(LayerGateTest, LogitsIdsAndWeights) {
  Routing r;
  ASSERT_OK(gate_->Select(ctx_, x_, valid_, &r));
  ExpectClose("logits_TE", ValidRows(Values(r.logits_TE)), ValidRows(case_.real.at("logits_TE")), machine());
  std::vector<int32_t> ids = *GetIds(device_.get(), r.ids_TK);
  const std::vector<int64_t>& want = case_.integer.at("ids_TK");
  for (int64_t i = 0; i < case_.T * case_.K; ++i) EXPECT_EQ(ids[i], case_.valid(i / case_.K) ? want[i] : -1) << "token " << i / case_.K;
  // What capacity dropped there is dropped here; capacity itself is the layer's.
  const TensorView selected = r.ids_TK;
  if (case_.info["dropped_routes"] != 0) {
    for (size_t i = 0; i < ids.size(); ++i)
      if (case_.integer.at("kept_TK")[i] == 0) ids[i] = -1;
    r.ids_TK = *arena_->Make(DType::kI32, selected.shape());
    ASSERT_OK(device_->CopyFromHost(r.ids_TK, ids.data()));
  }
  ASSERT_OK(gate_->Weigh(ctx_, selected, &r));
  const std::vector<double> weights = Values(r.weights_TK);
  ExpectClose("weights_TK", weights, case_.real.at("weights_TK"), machine());
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0) { EXPECT_EQ(weights[i], 0) << i; }
}

TEST_P(LayerGateTest, GradientsOfTheLossesOnScores) {
  const double tokens = static_cast<double>(case_.num_valid()), experts = static_cast<double>(case_.E), k = static_cast<double>(case_.K);
  for (const auto& [kind, value] : case_.info["aux"].items()) {
    SCOPED_TRACE(kind);
    Routing r;
    ASSERT_OK(gate_->Select(ctx_, x_, valid_, &r));
    ASSERT_OK(gate_->Weigh(ctx_, r.ids_TK, &r));
    std::vector<double> slope;
    for (const auto& n : case_.info["expert_count"]) slope.push_back(experts / ((kind == "switch" ? k : 1) * tokens * tokens) * n.get<double>());
    const TensorView dx = *arena_->Make(machine().dtype, {case_.T, case_.D}), none = *arena_->Make(machine().dtype, {case_.T, case_.K});
    ASSERT_OK(device_->Fill(dx, 0));
    ASSERT_OK(device_->Fill(none, 0));
    ASSERT_OK(store_->ZeroGrad());
    const bool z = kind == "z";
    ASSERT_OK(gate_->Backward(ctx_, x_, valid_, r, none, z ? TensorView() : Tensor({case_.E}, slope), z ? 2 / tokens : 0, dx));
    const std::string golden = "aux." + kind + ".grad.";
    const std::vector<double> dw = Values(router().grad);
    ExpectClose(golden + "x_TD", case_.Stored(Values(dx)), case_.real.at(golden + "x_TD"), machine());
    ExpectClose(golden + "router_ED", case_.Stored(dw), case_.real.at(golden + "router_ED"), machine());
    if (case_.D != case_.stored_D) ExpectClose(golden + "router_bias_E", case_.AddedColumn(dw), case_.real.at(golden + "router_bias_E"), machine());
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, LayerGateTest,
                         ::testing::Combine(::testing::Values("mixtral", "mixtral_masked", "mixtral_collapse", "switch", "switch_probability"), ::testing::ValuesIn(Machines())),
                         [](const auto& info) { return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param).name; });

}  // namespace
}  // namespace moe::testing
