// What holds for every routing decision: golden vectors, ties, padding, noise, bad scores, bad configurations.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/base/random.h"
#include "experts/gate/mixtral_gate.h"
#include "experts/gate/switch_gate.h"
#include "experts/testing/module_test.h"

namespace moe {
namespace {

class GateTest : public testing::ModuleTest {
 protected:
  static GateSpec Spec(int64_t d, int64_t e, int64_t k, double jitter = 0) {
    GateSpec s;
    s.d_model = d;
    s.num_global_experts = e;
    s.top_k = k;
    s.init_stddev = 1;
    s.config.set_jitter(jitter);
    return s;
  }
  // A gate with a router of its own; every call gives fresh parameters.
  std::unique_ptr<Gate> Make(const char* kind, const GateSpec& spec) {
    auto g = std::string(kind) == "mixtral" ? MakeMixtralGate(spec) : MakeSwitchGate(spec);
    EXPECT_TRUE(g.ok()) << g.status();
    stores_.push_back(std::make_unique<ParamStore>(device_.get(), DType::kF64));
    EXPECT_TRUE((*g)->DeclareParams(stores_.back().get(), "layers.3.moe.gate").ok());
    EXPECT_TRUE(stores_.back()->Materialize(7).ok());
    return std::move(*g);
  }
  Param& Router() { return stores_.back()->params().front(); }
  // Logits are the input itself.
  void RouterIsIdentity() {
    const TensorView& w = Router().value;
    for (int64_t e = 0; e < w.dim(0); ++e)
      for (int64_t i = 0; i < w.dim(1); ++i) w.as<double>()[e * w.dim(1) + i] = e == i ? 1 : 0;
  }
  absl::StatusOr<Routing> Route(Gate* gate, In x, In valid = TensorView(), const ModuleContext* given = nullptr) {
    const ModuleContext ctx = given ? *given : Context();
    Routing r;
    MOE_RETURN_IF_ERROR(gate->Select(ctx, x, valid, &r));
    MOE_RETURN_IF_ERROR(gate->Weigh(ctx, r.ids_TK, &r));
    return r;
  }

 private:
  std::vector<std::unique_ptr<ParamStore>> stores_;
};

void ExpectNear(const std::vector<double>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance) << i;
}

void ExpectMentions(const absl::Status& s, const std::vector<std::string>& parts) {
  EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument) << s;
  for (const std::string& part : parts) EXPECT_NE(s.message().find(part), absl::string_view::npos) << "no '" << part << "' in: " << s;
}

// R1. Three tokens, four experts; the second token has a tie between experts 0 and 1.
TEST_F(GateTest, GoldenVectors) {
  const std::vector<double> logits = {2, 1, 0, -1, .5, .5, -.5, 3, -1, .25, .75, 0};
  auto gate = Make("mixtral", Spec(4, 4, 2));
  RouterIsIdentity();
  auto r = Route(gate.get(), From({3, 4}, logits));
  ASSERT_OK(r.status());
  ExpectNear(Values(r->logits_TE), logits, 0);
  ExpectNear(Values(r->probs_TE), {.643914, .236883, .087144, .032059, .068727, .068727, .025283, .837263, .077141, .269250, .443917, .209692}, 1e-6);
  EXPECT_EQ(Ids(r->ids_TK), (std::vector<int32_t>{0, 1, 3, 0, 2, 1}));
  ExpectNear(Values(r->raw_TK), {.643914, .236883, .837263, .068727, .443917, .269250}, 1e-6);
  ExpectNear(Values(r->weights_TK), {.731059, .268941, .924142, .075858, .622459, .377541}, 1e-6);
  double z = 0;
  for (double l : Values(r->lse_T)) z += l * l / 3;
  EXPECT_NEAR(z, 6.163994, 1e-6);

  auto first = Make("switch", Spec(4, 4, 1));
  RouterIsIdentity();
  r = Route(first.get(), From({3, 4}, logits));
  ASSERT_OK(r.status());
  EXPECT_EQ(Ids(r->ids_TK), (std::vector<int32_t>{0, 3, 2}));
  ExpectNear(Values(r->weights_TK), {.643914, .837263, .443917}, 1e-6);
}

// Random shapes against sorting: ids distinct, by descending score, ties (scores are made equal often) to the lower id.
TEST_F(GateTest, ChoosesTheLargestOfEveryShape) {
  const uint64_t key = StreamKey(5, "shapes");
  for (int64_t trial = 0; trial < 60; ++trial) {
    const int64_t T = RandomBelow(key, 4 * trial, 9), E = 1 + RandomBelow(key, 4 * trial + 1, 20), K = 1 + RandomBelow(key, 4 * trial + 2, E);
    SCOPED_TRACE(absl::StrCat("trial ", trial, " T ", T, " E ", E, " K ", K));
    auto gate = Make("mixtral", Spec(E, E, K));
    RouterIsIdentity();
    const TensorView x = Zeros({T, E});
    for (int64_t i = 0; i < T * E; ++i) x.as<double>()[i] = -static_cast<double>(RandomBelow(key + trial, i, 4));   // all negative: R5
    auto r = Route(gate.get(), x);
    ASSERT_OK(r.status());
    for (int64_t t = 0; t < T; ++t) {
      std::vector<int32_t> order(E);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return x.as<double>()[t * E + a] > x.as<double>()[t * E + b]; });
      double sum = 0, mass = 0;
      for (int64_t k = 0; k < K; ++k) mass += std::exp(x.as<double>()[t * E + order[k]]);
      for (int64_t k = 0; k < K; ++k) {
        EXPECT_EQ(r->ids_TK.as<int32_t>()[t * K + k], order[k]);
        EXPECT_NEAR(r->weights_TK.as<double>()[t * K + k], std::exp(x.as<double>()[t * E + order[k]]) / mass, 1e-14);
        sum += r->weights_TK.as<double>()[t * K + k];
      }
      EXPECT_NEAR(sum, 1, 1e-15);
    }
  }
}

// R8: nothing distinguishes the experts.
TEST_F(GateTest, TiesEverywhereGoToTheLowerIds) {
  auto gate = Make("mixtral", Spec(3, 5, 3));
  ASSERT_OK(device_->Fill(Router().value, 0));
  for (int again = 0; again < 2; ++again) {
    auto r = Route(gate.get(), Random({4, 3}));
    ASSERT_OK(r.status());
    EXPECT_EQ(Ids(r->ids_TK), (std::vector<int32_t>{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}));
    for (double w : Values(r->weights_TK)) EXPECT_DOUBLE_EQ(w, 1.0 / 3);
  }
}

// R4: one token, more experts than tokens, as many choices as experts.
TEST_F(GateTest, OneTokenAndAllExperts) {
  auto gate = Make("mixtral", Spec(3, 8, 8));
  auto r = Route(gate.get(), Random({1, 3}));
  ASSERT_OK(r.status());
  std::vector<int32_t> ids = Ids(r->ids_TK);
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(ids, (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

// R3: one renormalised weight is 1 whatever the router says, and the router gets no gradient.
TEST_F(GateTest, RenormalisedSingleChoiceTeachesNothing) {
  const TensorView x = Random({6, 4}), dweights = Random({6, 1});
  for (const char* kind : {"mixtral", "switch"}) {
    auto gate = Make(kind, Spec(4, 5, 1));
    auto r = Route(gate.get(), x);
    ASSERT_OK(r.status());
    const TensorView dx = Zeros({6, 4});
    ASSERT_OK(gate->Backward(Context(), x, TensorView(), *r, dweights, TensorView(), 0, dx));
    auto norm = device_->SumSquares(Router().grad);
    if (std::string(kind) == "mixtral") {
      EXPECT_EQ(Values(r->weights_TK), std::vector<double>(6, 1.0));
      EXPECT_LT(*norm, 1e-30);
    } else {
      EXPECT_GT(*norm, 1e-3);
    }
  }
}

// R2, the gate's part: padding changes nothing for the others and reaches nothing, whatever it holds.
TEST_F(GateTest, PaddingIsNowhere) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  for (const char* kind : {"mixtral", "switch"}) {
    const int64_t T = 5, D = 4, E = 5, K = kind[0] == 'm' ? 2 : 1;   // T = E: a mask applied along the wrong axis would fit
    auto gate = Make(kind, Spec(D, E, K));
    const TensorView all = Random({T, D}), dweights = Random({T, K}), aux = Random({E});
    const std::vector<uint8_t> flags = {1, 0, 1, 1, 0};
    const TensorView some = Zeros({3, D}), dsome = Zeros({3, K});
    for (int64_t t = 0, at = 0; t < T; ++t) {
      if (flags[t]) {
        std::copy_n(all.as<double>() + t * D, D, some.as<double>() + at * D);
        std::copy_n(dweights.as<double>() + t * K, K, dsome.as<double>() + at++ * K);
      } else {
        std::fill_n(all.as<double>() + t * D, D, kNaN);
        std::fill_n(dweights.as<double>() + t * K, K, 0.0);
      }
    }
    auto padded = Route(gate.get(), all, Valid(flags)), plain = Route(gate.get(), some);
    ASSERT_OK(padded.status());
    ASSERT_OK(plain.status());
    for (int64_t t = 0, at = 0; t < T; ++t) {
      for (int64_t k = 0; k < K; ++k) {
        EXPECT_EQ(Ids(padded->ids_TK)[t * K + k], flags[t] ? Ids(plain->ids_TK)[at * K + k] : -1);
        EXPECT_EQ(Values(padded->weights_TK)[t * K + k], flags[t] ? Values(plain->weights_TK)[at * K + k] : 0);
      }
      at += flags[t];
    }
    std::vector<double> gradients[2], inputs[2];
    for (int which = 0; which < 2; ++which) {
      ASSERT_OK(device_->Fill(Router().grad, 0));
      const TensorView dx = Zeros({which ? 3 : T, D});
      ASSERT_OK(gate->Backward(Context(), which ? some : all, which ? TensorView() : Valid(flags), which ? *plain : *padded, which ? dsome : dweights, aux, 0.4, dx));
      gradients[which] = Values(Router().grad);
      inputs[which] = Values(dx);
    }
    ExpectNear(gradients[0], gradients[1], 1e-15);
    for (int64_t t = 0, at = 0; t < T; ++t) {
      for (int64_t i = 0; i < D; ++i) EXPECT_NEAR(inputs[0][t * D + i], flags[t] ? inputs[1][at * D + i] : 0, 1e-15);
      at += flags[t];
    }
  }
}

// R6: evaluation gives the same bits twice, without noise; training noise depends on key and global position alone.
TEST_F(GateTest, JitterIsNoiseOfTrainingAlone) {
  const int64_t T = 8, D = 3;
  auto gate = Make("switch", Spec(D, 4, 1, 0.2));
  const std::vector<double> router = Values(Router().value);
  const TensorView x = Random({T, D});
  ModuleContext eval = Context(), train = Context(), other = Context();
  eval.noise_key = train.noise_key = 31;
  other.noise_key = 32;
  train.training = other.training = true;
  auto clean = Route(gate.get(), x, {}, &eval), again = Route(gate.get(), x, {}, &eval), noisy = Route(gate.get(), x, {}, &train), different = Route(gate.get(), x, {}, &other);
  for (const auto* r : {&clean, &again, &noisy, &different}) ASSERT_OK(r->status());
  EXPECT_EQ(Values(clean->logits_TE), Values(again->logits_TE));
  EXPECT_FALSE(clean->x_TD.defined());
  EXPECT_NE(Values(noisy->logits_TE), Values(clean->logits_TE));
  EXPECT_NE(Values(noisy->logits_TE), Values(different->logits_TE));
  EXPECT_EQ(Values(Router().value), router);
  bool low = false, high = false;
  for (int64_t i = 0; i < T * D; ++i) {
    const double factor = noisy->x_TD.as<double>()[i] / x.as<double>()[i];
    EXPECT_GE(factor, 0.8 - 1e-12);
    EXPECT_LE(factor, 1.2 + 1e-12);
    low |= factor < 0.9;
    high |= factor > 1.1;
  }
  EXPECT_TRUE(low && high);
  // The second half alone, as another rank would see it.
  ModuleContext half = train;
  half.first_token = T / 2;
  auto part = Route(gate.get(), x.Rows(T / 2, T / 2), {}, &half);
  ASSERT_OK(part.status());
  const std::vector<double> whole = Values(noisy->logits_TE);
  EXPECT_EQ(Values(part->logits_TE), std::vector<double>(whole.begin() + whole.size() / 2, whole.end()));
  // The same tokens as two runs, as a context-parallel rank holds them.
  const std::vector<TokenRun> runs = {{T / 2 - 1, 0}, {T / 2 + 1, T / 2 - 1}};
  ModuleContext split = train;
  split.first_token = 12345;
  split.token_runs = &runs;
  auto again_whole = Route(gate.get(), x, {}, &split);
  ASSERT_OK(again_whole.status());
  EXPECT_EQ(Values(again_whole->logits_TE), whole);
}

// R7. A logit of -inf would be a score of 0 and go unnoticed.
TEST_F(GateTest, ScoresThatAreNotFiniteAreAnError) {
  for (const char* kind : {"mixtral", "switch"}) {
    auto gate = Make(kind, Spec(3, 3, 1));
    RouterIsIdentity();
    for (double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
      const TensorView x = Random({4, 3});
      // One column of the identity alone: no product of infinity and zero that would make everything NaN.
      ASSERT_OK(device_->Fill(Router().value, 1));
      x.as<double>()[2 * 3 + 1] = bad;
      const auto r = Route(gate.get(), x);
      ExpectMentions(r.status(), {"router logits", "2"});
    }
    const TensorView large = Random({4, 3});
    ASSERT_OK(device_->Fill(large, 1e200));
    EXPECT_TRUE(Route(gate.get(), large).ok()) << kind;
  }
}

TEST_F(GateTest, NoTokens) {
  for (const char* kind : {"mixtral", "switch"}) {
    auto gate = Make(kind, Spec(3, 4, 1, kind[0] == 's' ? 0.1 : 0));
    ModuleContext ctx = Context();
    ctx.training = true;
    for (const TensorView& valid : {TensorView(), TensorView(nullptr, DType::kU8, {0})}) {
      auto r = Route(gate.get(), Zeros({0, 3}), valid, &ctx);
      ASSERT_OK(r.status());
      EXPECT_EQ(r->weights_TK.shape(), (std::vector<int64_t>{0, 1}));
      ASSERT_OK(gate->Backward(ctx, Zeros({0, 3}), valid, *r, Zeros({0, 1}), Random({4}), 0.1, Zeros({0, 3})));
    }
    EXPECT_EQ(*device_->SumSquares(Router().grad), 0);
  }
}

TEST_F(GateTest, RouterParameter) {
  auto gate = Make("mixtral", Spec(3, 4, 2));
  EXPECT_EQ(Router().name, "layers.3.moe.gate.weight");
  EXPECT_EQ(Router().kind, ParamKind::kReplicated);
  EXPECT_EQ(Router().shape, (std::vector<int64_t>{4, 3}));
  EXPECT_TRUE(Router().decay);
}

// R12.
TEST_F(GateTest, MisuseNamesFieldsAndValues) {
  ExpectMentions(MakeMixtralGate(Spec(3, 4, 5)).status(), {"model.top_k", "5", "model.num_global_experts", "4"});
  ExpectMentions(MakeMixtralGate(Spec(3, 4, 0)).status(), {"model.top_k", "0"});
  ExpectMentions(MakeMixtralGate(Spec(3, 4, 2, 0.1)).status(), {"gate.jitter", "0.1", "gate.kind=switch"});
  ExpectMentions(MakeSwitchGate(Spec(3, 4, 2)).status(), {"model.top_k", "2", "gate.kind=switch", "model.top_k=1"});
  ExpectMentions(MakeSwitchGate(Spec(3, 0, 1)).status(), {"model.num_global_experts", "0"});
  ExpectMentions(MakeSwitchGate(Spec(0, 4, 1)).status(), {"model.d_model", "0"});
}

}  // namespace
}  // namespace moe
