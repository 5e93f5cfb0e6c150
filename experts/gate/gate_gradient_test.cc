// Every gradient of every gate against finite differences: of the router's matrix and of its input, through the weights, the
// balancing loss and the z loss, with padding and with routes that capacity dropped.
#include <functional>

#include "experts/gate/mixtral_gate.h"
#include "experts/gate/switch_gate.h"
#include "experts/testing/module_test.h"

namespace moe {
namespace {

struct Case {
  std::string name;
  std::function<absl::StatusOr<std::unique_ptr<Gate>>(const GateSpec&)> make;
  int64_t top_k = 1;
  double jitter = 0;
  bool padding = false, drops = false;
  double aux = 0.7, z = 0.3;
};

class GateGradientTest : public testing::ModuleTest, public ::testing::WithParamInterface<Case> {};

TEST_P(GateGradientTest, IsTheSlope) {
  const Case& c = GetParam();
  constexpr int64_t T = 7, D = 5, E = 6;
  const int64_t K = c.top_k;
  GateSpec spec;
  spec.d_model = D;
  spec.num_global_experts = E;
  spec.top_k = K;
  spec.init_stddev = 1;
  spec.config.set_jitter(c.jitter);
  auto made = c.make(spec);
  ASSERT_OK(made.status());
  Gate& gate = **made;
  ASSERT_OK(gate.DeclareParams(&store_, "gate"));
  ASSERT_OK(store_.Materialize(11));
  const Param& router = store_.params().front();

  const TensorView x = Random({T, D}), dweights = Random({T, K}), aux = Random({E}, c.aux);
  const TensorView valid = c.padding ? Valid({1, 0, 1, 1, 0, 1, 1}) : TensorView();
  ModuleContext ctx = Context();
  ctx.training = true;
  ctx.noise_key = 99;
  ctx.first_token = 1000;

  // Routes that capacity takes away; their weights have no gradient, as after combine.
  std::vector<int64_t> dropped;
  if (c.drops) {
    for (int64_t i = 0; i < T * K; i += 3) {
      dropped.push_back(i);
      dweights.as<double>()[i] = 0;
    }
  }
  std::vector<int32_t> chosen;
  const auto forward = [&](Routing* r) {
    arena_.Rewind({});
    ASSERT_OK(gate.Select(ctx, x, valid, r));
    if (chosen.empty()) chosen = Ids(r->ids_TK);
    EXPECT_EQ(Ids(r->ids_TK), chosen) << "a finite difference crossed a decision: take another seed";
    const TensorView selected = r->ids_TK;
    if (c.drops) {
      std::vector<int32_t> ids = chosen;
      for (int64_t i : dropped) ids[i] = -1;
      r->ids_TK = Ints({T, K}, ids);
    }
    ASSERT_OK(gate.Weigh(ctx, selected, r));
  };
  const auto loss = [&] {
    Routing r;
    forward(&r);
    double sum = Dot(dweights, r.weights_TK);
    for (int64_t t = 0; t < T; ++t) {
      if (valid.defined() && valid.as<uint8_t>()[t] == 0) continue;
      for (int64_t e = 0; e < E; ++e) sum += aux.as<double>()[e] * r.probs_TE.as<double>()[t * E + e];
      sum += 0.5 * c.z * r.lse_T.as<double>()[t] * r.lse_T.as<double>()[t];
    }
    return sum;
  };

  Routing r;
  forward(&r);
  for (int64_t i : dropped) EXPECT_EQ(r.weights_TK.as<double>()[i], 0);
  // Backward adds: both gradients start at 1.
  const TensorView dx = Zeros({T, D});
  ASSERT_OK(device_->Fill(dx, 1));
  ASSERT_OK(device_->Fill(router.grad, 1));
  ASSERT_OK(gate.Backward(ctx, x, valid, r, dweights, c.aux == 0 ? TensorView() : aux, c.z, dx));
  for (const TensorView& g : {dx, router.grad})
    for (int64_t i = 0; i < g.size(); ++i) g.as<double>()[i] -= 1;
  if (valid.defined()) {
    for (int64_t i = 0; i < T * D; ++i) EXPECT_EQ(dx.as<double>()[i] != 0, valid.as<uint8_t>()[i / D] != 0) << i;
  }
  ExpectGradient("x", loss, x, dx);
  ExpectGradient("router", loss, router.value, router.grad);
}

std::vector<Case> Cases() {
  std::vector<Case> out;
  for (int64_t k : {2, 3, 6}) {
    const std::string n = absl::StrCat("mixtral_k", k);
    out.push_back({n, MakeMixtralGate, k});
    out.push_back({n + "_weights_alone", MakeMixtralGate, k, 0, false, false, 0, 0});
    out.push_back({n + "_padding", MakeMixtralGate, k, 0, true});
    out.push_back({n + "_drops", MakeMixtralGate, k, 0, false, true});
    out.push_back({n + "_padding_drops", MakeMixtralGate, k, 0, true, true});
  }
  out.push_back({"mixtral_k1", MakeMixtralGate, 1});
  out.push_back({"switch", MakeSwitchGate, 1});
  out.push_back({"switch_weights_alone", MakeSwitchGate, 1, 0, false, false, 0, 0});
  out.push_back({"switch_jitter", MakeSwitchGate, 1, 0.3});
  out.push_back({"switch_padding_drops", MakeSwitchGate, 1, 0, true, true});
  out.push_back({"switch_jitter_padding_drops", MakeSwitchGate, 1, 0.3, true, true});
  return out;
}

INSTANTIATE_TEST_SUITE_P(Gates, GateGradientTest, ::testing::ValuesIn(Cases()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace moe
