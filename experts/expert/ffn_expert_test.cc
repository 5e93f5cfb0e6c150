// Experts against loops over rows that follow the formula, every gradient against finite differences, names and initial
// values of their parameters.
#include <cmath>
#include <functional>
#include <map>

#include "core/base/random.h"
#include "experts/expert/ffn_expert.h"
#include "experts/testing/module_test.h"

namespace moe {
namespace {

struct Case {
  std::string kind;
  Activation activation;
  bool bias;
};

// The activation as the papers write it, of scalars.
double Apply(Activation a, double gate, double up) {
  switch (a) {
    case Activation::kSwiGlu: return gate / (1 + std::exp(-gate)) * up;
    case Activation::kGelu: return gate * 0.5 * std::erfc(-gate / std::sqrt(2.0));
    case Activation::kGeluTanh: return 0.5 * gate * (1 + std::tanh(std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate)));
    case Activation::kRelu: return std::max(gate, 0.0);
  }
  return 0;
}

class FfnExpertTest : public testing::ModuleTest, public ::testing::WithParamInterface<Case> {
 protected:
  static ExpertSpec Spec(const Case& c, int64_t D, int64_t F, int64_t experts, std::vector<int64_t> local) {
    ExpertSpec s;
    s.d_model = D;
    s.d_hidden = F;
    s.num_global_experts = experts;
    s.local_experts = std::move(local);
    s.init_stddev_in = 0.6;
    s.init_stddev_out = 0.7;
    s.config.set_kind(c.kind);
    s.config.set_bias(c.bias);
    return s;
  }
  std::unique_ptr<Expert> Make(const ExpertSpec& spec, Activation a, ParamStore* store) {
    auto e = MakeFfnExpert(spec, a);
    EXPECT_TRUE(e.ok()) << e.status();
    EXPECT_TRUE((*e)->DeclareParams(store, "layers.1.moe").ok());
    EXPECT_TRUE(store->Materialize(3).ok());
    return std::move(*e);
  }
  // Biases start at 0: give them values, so that they are tested.
  void FillBiases(ParamStore* store) {
    for (Param& p : store->params())
      if (!p.decay) ASSERT_OK(device_->RandomNormal(p.value, 17, p.shape.back(), 0, 0.5));
  }
  // What a piece holds; zeros when the expert has no such parameter.
  std::vector<double> Piece(ParamStore* store, const std::string& name, int64_t size) {
    auto found = store->Find(name);
    return found.ok() ? Values(PieceView(found->first->value, *found->second)) : std::vector<double>(size, 0.0);
  }
};

TEST_P(FfnExpertTest, ForwardFollowsTheFormula) {
  const Case& c = GetParam();
  for (const auto& [D, F, rows] : std::vector<std::tuple<int64_t, int64_t, std::vector<int64_t>>>{
           {7, 5, {3, 0, 4}}, {1, 1, {1}}, {100, 7, {0, 2, 9, 0}}, {5, 60, {0, 0}}}) {
    std::vector<int64_t> ids, offsets = {0};
    for (size_t i = 0; i < rows.size(); ++i) {
      ids.push_back(2 * static_cast<int64_t>(i) + 1);   // every other expert of the layer
      offsets.push_back(offsets.back() + rows[i]);
    }
    ParamStore store(device_.get(), DType::kF64);
    auto expert = Make(Spec(c, D, F, 2 * ids.size(), ids), c.activation, &store);
    FillBiases(&store);
    const int64_t R = offsets.back();
    const TensorView x = Random({R, D}), y = Zeros({R, D});
    ExpertSaved saved;
    ASSERT_OK(expert->Forward(Context(), x, offsets, &saved, y));
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::string of = absl::StrCat("layers.1.moe.experts.", ids[i], ".");
      const auto w1 = Piece(&store, of + "w1.weight", F * D), w3 = Piece(&store, of + "w3.weight", F * D), w2 = Piece(&store, of + "w2.weight", D * F);
      const auto b1 = Piece(&store, of + "w1.bias", F), b3 = Piece(&store, of + "w3.bias", F), b2 = Piece(&store, of + "w2.bias", D);
      for (int64_t r = offsets[i]; r < offsets[i + 1]; ++r) {
        std::vector<double> out = b2;
        for (int64_t f = 0; f < F; ++f) {
          double gate = b1[f], up = b3[f];
          for (int64_t d = 0; d < D; ++d) {
            gate += w1[f * D + d] * x.as<double>()[r * D + d];
            up += w3[f * D + d] * x.as<double>()[r * D + d];
          }
          const double a = Apply(c.activation, gate, up);
          for (int64_t d = 0; d < D; ++d) out[d] += w2[d * F + f] * a;
        }
        for (int64_t d = 0; d < D; ++d) ASSERT_NEAR(y.as<double>()[r * D + d], out[d], 1e-12 * (1 + std::abs(out[d]))) << "expert " << ids[i] << " row " << r;
      }
    }
  }
}

TEST_P(FfnExpertTest, GradientsAreTheSlopes) {
  const Case& c = GetParam();
  const int64_t D = 4, F = 3, R = 6;
  const std::vector<int64_t> offsets = {0, 2, 2, 6};   // the second expert is cold
  auto expert = Make(Spec(c, D, F, 4, {0, 2, 3}), c.activation, &store_);
  FillBiases(&store_);
  const TensorView x = Random({R, D}), dy = Random({R, D}), y = Zeros({R, D}), dx = Zeros({R, D});
  ASSERT_OK(device_->Fill(dx, NAN));   // overwritten, not added to
  const auto loss = [&] {
    arena_.Rewind({});
    ExpertSaved s;
    EXPECT_TRUE(expert->Forward(Context(), x, offsets, &s, y).ok());
    return Dot(dy, y);
  };
  // Twice: gradients of parameters add up over micro-batches.
  for (int micro = 0; micro < 2; ++micro) {
    ExpertSaved s;
    ASSERT_OK(expert->Forward(Context(), x, offsets, &s, y));
    ASSERT_OK(expert->Backward(Context(), x, offsets, s, dy, dx));
  }
  for (Param& p : store_.params()) {
    ASSERT_OK(device_->Scale(p.grad, 0.5));
    const int64_t one = p.size() / 3;
    for (int64_t i = one; i < 2 * one; ++i) EXPECT_EQ(p.grad.as<double>()[i], 0) << p.name << ": the cold expert";
    ExpectGradient(p.name, loss, p.value, p.grad);
  }
  ExpectGradient("x", loss, x, dx);
}

TEST_P(FfnExpertTest, NoRowsAtAll) {
  const Case& c = GetParam();
  auto expert = Make(Spec(c, 4, 3, 2, {0, 1}), c.activation, &store_);
  ExpertSaved s;
  const std::vector<int64_t> offsets = {0, 0, 0};
  ASSERT_OK(expert->Forward(Context(), Zeros({0, 4}), offsets, &s, Zeros({0, 4})));
  ASSERT_OK(expert->Backward(Context(), Zeros({0, 4}), offsets, s, Zeros({0, 4}), Zeros({0, 4})));
  EXPECT_EQ(*device_->SumSquares(store_.flat_grad(ParamKind::kExpert)), 0);
}

// An expert starts from the same values wherever it is held.
TEST_P(FfnExpertTest, ParametersDoNotDependOnThePlacement) {
  const Case& c = GetParam();
  ParamStore all(device_.get(), DType::kF64), some(device_.get(), DType::kF64);
  Make(Spec(c, 4, 3, 4, {0, 1, 2, 3}), c.activation, &all);
  Make(Spec(c, 4, 3, 4, {1, 3}), c.activation, &some);
  std::vector<std::string> names;
  for (const Param& p : some.params()) {
    EXPECT_EQ(p.kind, ParamKind::kExpert);
    for (const ParamPiece& q : p.pieces) {
      names.push_back(q.name);
      auto there = all.Find(q.name);
      ASSERT_OK(there.status());
      EXPECT_EQ(Values(PieceView(p.value, q)), Values(PieceView(there->first->value, *there->second))) << q.name;
    }
  }
  const std::string e1 = "layers.1.moe.experts.1.", e3 = "layers.1.moe.experts.3.";
  std::vector<std::string> want;
  const bool glu = c.kind == "swiglu";
  for (const char* end : {".weight", ".bias"}) {
    if (end[1] == 'b' && !c.bias) break;
    for (const auto& of : {e1, e3}) {
      want.push_back(of + "w1" + end);
      if (glu) want.push_back(of + "w3" + end);
    }
    for (const auto& of : {e1, e3}) want.push_back(of + "w2" + end);
  }
  EXPECT_EQ(names, want);
}

// Shares of the inner width: blocks of the same global tensors with the same values, whose partial outputs and input gradients
// add up to the whole's. The output's bias is in one of them, its gradient in all. Dense layers under tensor parallelism too.
TEST_P(FfnExpertTest, SharesOfTheInnerWidthAddUp) {
  const Case& c = GetParam();
  const int64_t D = 5, F = 6, R = 9;
  for (ParamKind kind : {ParamKind::kExpert, ParamKind::kDense}) {
    const bool dense = kind == ParamKind::kDense;
    const std::vector<int64_t> ids = dense ? std::vector<int64_t>{0} : std::vector<int64_t>{1, 2}, offsets = dense ? std::vector<int64_t>{0, R} : std::vector<int64_t>{0, 4, R};
    const TensorView x = Random({R, D}), dy = Random({R, D}), y = Zeros({R, D}), dx = Zeros({R, D});
    ParamStore whole(device_.get(), DType::kF64);
    // Biases by global name and place, as if they had initial values.
    const auto fill = [&](ParamStore* store) {
      for (Param& p : store->params()) {
        EXPECT_EQ(p.kind, kind);
        for (const ParamPiece& q : p.pieces)
          if (!p.decay) ASSERT_OK(device_->RandomNormal(PieceView(p.value, q), StreamKey(8, q.name), q.begin[0], 0, 0.5));
      }
    };
    const auto run = [&](Expert* e) {
      ExpertSaved saved;
      ASSERT_OK(e->Forward(Context(), x, offsets, &saved, y));
      ASSERT_OK(e->Backward(Context(), x, offsets, saved, dy, dx));
    };
    ExpertSpec spec = Spec(c, D, F, 4, ids);
    spec.param_kind = kind;
    auto all = Make(spec, c.activation, &whole);
    fill(&whole);
    run(all.get());
    const std::vector<double> y_whole = Values(y), dx_whole = Values(dx);
    for (int64_t n : {1, 2, 3}) {
      std::vector<double> y_sum(R * D, 0.0), dx_sum(R * D, 0.0);
      std::map<std::string, int64_t> covered;
      for (int64_t rank = 0; rank < n; ++rank) {
        ParamStore store(device_.get(), DType::kF64);
        spec.etp_rank = rank;
        spec.etp_size = n;
        auto e = Make(spec, c.activation, &store);
        fill(&store);
        run(e.get());
        for (int64_t i = 0; i < R * D; ++i) {
          y_sum[i] += y.as<double>()[i];
          dx_sum[i] += dx.as<double>()[i];
        }
        for (const Param& p : store.params()) {
          for (const ParamPiece& q : p.pieces) {
            auto there = whole.Find(q.name);
            ASSERT_OK(there.status());
            EXPECT_EQ(q.global_shape, there->second->shape) << q.name;
            const bool shared = q.name.find("w2.bias") != std::string::npos;
            EXPECT_EQ(p.counted, !shared || rank == 0) << q.name;
            if (p.counted) covered[q.name] += q.size();
            const int64_t columns = q.shape.size() == 2 ? q.shape[1] : 1, width = q.shape.size() == 2 ? q.global_shape[1] : 1;
            const int64_t begin = q.begin[0] * width + (q.shape.size() == 2 ? q.begin[1] : 0);
            for (const auto& [mine, theirs] : {std::make_pair(p.value, there->first->value), std::make_pair(p.grad, there->first->grad)}) {
              const std::vector<double> part = Values(PieceView(mine, q)), total = Values(PieceView(theirs, *there->second));
              for (int64_t i = 0; i < q.size(); ++i) ASSERT_NEAR(part[i], total[begin + i / columns * width + i % columns], 1e-12) << q.name << " " << i << ", share " << rank << " of " << n;
            }
          }
        }
      }
      for (const Param& p : whole.params())
        for (const ParamPiece& q : p.pieces) EXPECT_EQ(covered[q.name], q.size()) << q.name;
      for (int64_t i = 0; i < R * D; ++i) {
        ASSERT_NEAR(y_sum[i], y_whole[i], 1e-12);
        ASSERT_NEAR(dx_sum[i], dx_whole[i], 1e-12);
      }
    }
  }
}

// Gradients of weights that are left for later: nothing happens before, and what they read is still there.
TEST_P(FfnExpertTest, WeightGradientsCanWait) {
  const Case& c = GetParam();
  auto expert = Make(Spec(c, 4, 6, 3, {0, 2}), c.activation, &store_);
  FillBiases(&store_);
  const TensorView x = Random({5, 4}), dy = Random({5, 4}), y = Zeros({5, 4}), dx = Zeros({5, 4}), dx_later = Zeros({5, 4});
  ExpertSaved s;
  std::vector<int64_t> offsets = {0, 2, 5};
  ASSERT_OK(expert->Forward(Context(), x, offsets, &s, y));
  ASSERT_OK(expert->Backward(Context(), x, offsets, s, dy, dx));
  std::vector<std::vector<double>> at_once;
  for (const Param& p : store_.params()) at_once.push_back(Values(p.grad));

  ASSERT_OK(store_.ZeroGrad());
  std::vector<std::function<absl::Status()>> later;
  {
    ModuleContext ctx = Context();
    ctx.later = &later;
    ASSERT_OK(expert->Forward(ctx, x, offsets, &s, y));
    ASSERT_OK(expert->Backward(ctx, x, offsets, s, dy, dx_later));
  }
  EXPECT_EQ(Values(dx_later), Values(dx));
  offsets.assign(3, 0);   // the caller's own
  // Whatever comes next takes memory from the arena.
  auto scribble = arena_.Make(DType::kF64, {1000});
  ASSERT_OK(scribble.status());
  ASSERT_OK(device_->Fill(*scribble, NAN));
  for (const Param& p : store_.params()) EXPECT_EQ(*device_->SumSquares(p.grad), 0) << p.name;
  for (const auto& work : later) ASSERT_OK(work());
  for (size_t i = 0; i < at_once.size(); ++i) EXPECT_EQ(Values(store_.params()[i].grad), at_once[i]) << store_.params()[i].name;
}

INSTANTIATE_TEST_SUITE_P(Kinds, FfnExpertTest,
                         ::testing::Values(Case{"swiglu", Activation::kSwiGlu, false}, Case{"swiglu", Activation::kSwiGlu, true}, Case{"gelu", Activation::kGelu, false},
                                           Case{"gelu", Activation::kGelu, true}, Case{"gelu_tanh", Activation::kGeluTanh, false}, Case{"gelu_tanh", Activation::kGeluTanh, true},
                                           Case{"relu", Activation::kRelu, false}, Case{"relu", Activation::kRelu, true}),
                         [](const auto& info) { return info.param.kind + (info.param.bias ? "_bias" : ""); });

class ExpertSpecTest : public testing::ModuleTest {};

TEST_F(ExpertSpecTest, ADenseLayerIsOneNetworkWithNamesOfItsOwn) {
  ExpertSpec s;
  s.d_model = 4;
  s.d_hidden = 3;
  s.num_global_experts = 1;
  s.local_experts = {0};
  s.param_kind = ParamKind::kDense;
  auto e = MakeFfnExpert(s, Activation::kSwiGlu);
  ASSERT_OK(e.status());
  ASSERT_OK((*e)->DeclareParams(&store_, "layers.0.ffn"));
  EXPECT_EQ(store_.params()[0].kind, ParamKind::kDense);
  EXPECT_EQ(store_.params()[0].pieces[1].name, "layers.0.ffn.w3.weight");
  EXPECT_EQ(store_.params()[0].pieces[1].local_offset, 12);
  EXPECT_EQ(store_.params()[1].pieces[0].name, "layers.0.ffn.w2.weight");
}

TEST_F(ExpertSpecTest, MisuseNamesTheValue) {
  const auto message = [](int64_t D, std::vector<int64_t> local, ParamKind kind) {
    ExpertSpec s;
    s.d_model = D;
    s.d_hidden = 3;
    s.num_global_experts = 4;
    s.local_experts = std::move(local);
    s.param_kind = kind;
    const auto e = MakeFfnExpert(s, Activation::kRelu);
    return e.ok() ? std::string("fine") : std::string(e.status().message());
  };
  EXPECT_EQ(message(2, {}, ParamKind::kExpert), "fine");   // a rank without experts
  EXPECT_NE(message(0, {0}, ParamKind::kExpert).find("d_model is 0"), std::string::npos);
  EXPECT_NE(message(2, {4}, ParamKind::kExpert).find("local expert 4 is outside 0 .. 3"), std::string::npos);
  EXPECT_NE(message(2, {1, 1}, ParamKind::kExpert).find("must ascend, 1 comes after 1"), std::string::npos);
  EXPECT_NE(message(2, {0, 1}, ParamKind::kDense).find("one network, not 2"), std::string::npos);
}

TEST_F(ExpertSpecTest, InnerWidthsThatCannotBeSharedNameTheNearest) {
  const auto message = [](int64_t F, int64_t n, ParamKind kind) {
    ExpertSpec s;
    s.d_model = 4;
    s.d_hidden = F;
    s.num_global_experts = 1;
    s.local_experts = {0};
    s.etp_size = n;
    s.param_kind = kind;
    return std::string(MakeFfnExpert(s, Activation::kRelu).status().message());
  };
  EXPECT_EQ(message(12, 4, ParamKind::kExpert), "");
  EXPECT_EQ(message(10, 4, ParamKind::kExpert), "model.d_hidden is 10, not divisible by mesh.etp, which is 4; nearest that are: 8 and 12");
  EXPECT_EQ(message(3, 4, ParamKind::kDense), "model.d_hidden_dense (0: model.d_hidden x model.top_k) is 3, not divisible by mesh.tp, which is 4; nearest that are: 4");
}

}  // namespace
}  // namespace moe
