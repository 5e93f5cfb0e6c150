// The same global batch gives the same numbers for every layout and every split of the batch: losses, gradient norm and all
// parameters after some steps, equal to one rank. In float64 the tolerance is so small that no wrong factor hides.
#include <cmath>
#include <map>
#include <mutex>

#include "gtest/gtest.h"
#include "tests/engine/rank_world.h"

namespace moe {
namespace {

constexpr int kSteps = 4;

struct Outcome {
  std::vector<StepStats> steps;
  std::vector<std::vector<int64_t>> counts;
  std::map<std::string, std::vector<double>> params;   // by global name
};

struct Layout { const char* name; int64_t world, ep; std::vector<int64_t> sequences; int64_t micro_batch; };

std::vector<double> ToDoubles(const TensorView& v) {
  const TensorView f = v.Flat();
  std::vector<double> out(f.size());
  for (int64_t i = 0; i < f.size(); ++i) out[i] = f.dtype() == DType::kF64 ? f.as<double>()[i] : static_cast<double>(f.as<float>()[i]);
  return out;
}

absl::StatusOr<Outcome> TrainOn(config::Config c, const Layout& l, const DeviceMaker& device) {
  c.mutable_train()->set_micro_batch(l.micro_batch);
  Outcome out;
  std::mutex mutex;
  MOE_RETURN_IF_ERROR(RunWorld(c, l.world, l.ep, device, [&](RankWorld* w) -> absl::Status {
    int64_t begin = 0;
    for (int64_t r = 0; r < w->rank; ++r) begin += l.sequences[r];
    for (int step = 0; step < kSteps; ++step) {
      const Text text = RandomText(c, 6, 100 + step);
      StepStats s;
      MOE_RETURN_IF_ERROR(w->model->ForwardBackward(text.Part(begin, l.sequences[w->rank]), &s));
      MOE_RETURN_IF_ERROR(w->model->OptimizerStep(&s));
      if (w->rank == 0) {
        out.steps.push_back(s);
        out.counts.push_back(w->model->expert_count());
      }
    }
    std::lock_guard<std::mutex> lock(mutex);
    for (const auto& [param, piece] : w->model->pieces()) {
      std::vector<double> v = ToDoubles(PieceView(param->value, *piece));
      const auto [it, fresh] = out.params.emplace(piece->name, v);
      // G7: copies on several ranks are the same bits.
      if (!fresh && it->second != v) return Internal(piece->name, " differs between ranks");
    }
    return absl::OkStatus();
  }));
  return out;
}

double Difference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0, scale = 1e-30;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(a[i] - b[i]));
    scale = std::max(scale, std::abs(b[i]));
  }
  return most / scale;
}

void ExpectSame(const Outcome& got, const Outcome& want, double loss_tolerance, double param_tolerance, const std::string& what) {
  for (int s = 0; s < kSteps; ++s) {
    EXPECT_NEAR(got.steps[s].loss, want.steps[s].loss, loss_tolerance * want.steps[s].loss) << what << " step " << s;
    EXPECT_NEAR(got.steps[s].aux_loss, want.steps[s].aux_loss, loss_tolerance) << what << " step " << s;
    EXPECT_NEAR(got.steps[s].z_loss, want.steps[s].z_loss, loss_tolerance * want.steps[s].z_loss) << what << " step " << s;
    EXPECT_NEAR(got.steps[s].grad_norm, want.steps[s].grad_norm, 3 * loss_tolerance * want.steps[s].grad_norm) << what << " step " << s;
    EXPECT_EQ(got.steps[s].tokens, want.steps[s].tokens) << what;
    EXPECT_EQ(got.steps[s].dropped_routes, want.steps[s].dropped_routes) << what;
    EXPECT_EQ(got.counts[s], want.counts[s]) << what << " step " << s;
  }
  ASSERT_EQ(got.params.size(), want.params.size()) << what;
  for (const auto& [name, value] : want.params) EXPECT_LT(Difference(got.params.at(name), value), param_tolerance) << what << " " << name;
}

// Unequal shares and ranks without a sequence are the normal case (H3, H6, H9).
const Layout kLayouts[] = {
    {"micro_batches_of_4", 1, 1, {6}, 4},
    {"dp2_ep1", 2, 1, {3, 3}, 0},
    {"dp2_ep2", 2, 2, {3, 3}, 0},
    {"dp2_ep2_unequal", 2, 2, {5, 1}, 0},
    {"dp2_ep2_one_empty", 2, 2, {0, 6}, 0},
    {"dp3_ep1", 3, 1, {1, 2, 3}, 0},
    {"dp4_ep4", 4, 4, {2, 2, 1, 1}, 0},
    {"dp4_ep2", 4, 2, {2, 2, 1, 1}, 0},
    {"dp4_ep2_micro", 4, 2, {3, 2, 0, 1}, 1},
    {"dp4_ep1_empty", 4, 1, {0, 0, 6, 0}, 2},
};

class LayoutTest : public testing::TestWithParam<Layout> {};

TEST_P(LayoutTest, EqualsOneRankWithAdamW) {
  config::Config c = TinyConfig();
  c.mutable_model()->set_dtype("float64");
  const auto device = [] { return MakeReferenceDevice(); };
  auto want = TrainOn(c, {"one", 1, 1, {6}, 0}, device), got = TrainOn(c, GetParam(), device);
  ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
  ExpectSame(*got, *want, 1e-12, 1e-7, GetParam().name);   // AdamW magnifies rounding where gradients vanish
}

// G1: SGD, where no factor on a gradient is hidden by a normalisation.
TEST_P(LayoutTest, EqualsOneRankWithSgdHfLossAndGlobalCapacity) {
  config::Config c = TinyConfig();
  c.mutable_model()->set_dtype("float64");
  c.mutable_optimizer()->set_kind("sgd");
  c.mutable_optimizer()->set_lr(0.2);
  c.mutable_optimizer()->set_momentum(0.5);
  c.mutable_gate()->set_aux_loss("hf");
  // Drops by capacity over a micro-batch are another rule than over the batch: only without a split.
  if (GetParam().micro_batch == 0) {
    c.mutable_gate()->set_capacity_factor(0.9);
    c.mutable_gate()->set_capacity_scope("global");
    c.mutable_gate()->set_drop_policy(GetParam().world % 2 ? "probability" : "position");
  }
  const auto device = [] { return MakeReferenceDevice(); };
  auto want = TrainOn(c, {"one", 1, 1, {6}, 0}, device), got = TrainOn(c, GetParam(), device);
  ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
  if (GetParam().micro_batch == 0) { EXPECT_GT(want->steps[0].dropped_routes, 0); }
  ExpectSame(*got, *want, 1e-12, 1e-11, GetParam().name);
}

TEST_P(LayoutTest, EqualsOneRankInFloat32OnTheCpu) {
  config::Config c = TinyConfig();
  c.mutable_optimizer()->set_kind("sgd");
  c.mutable_optimizer()->set_lr(0.02);
  const auto device = [] { return std::move(MakeCpuDevice(1)).value(); };
  auto want = TrainOn(c, {"one", 1, 1, {6}, 0}, device), got = TrainOn(c, GetParam(), device), again = TrainOn(c, GetParam(), device);
  ASSERT_TRUE(want.ok() && got.ok() && again.ok()) << want.status() << got.status();
  ExpectSame(*got, *want, 1e-5, 1e-5, GetParam().name);
  EXPECT_EQ(again->params, got->params) << "not the same bits from run to run";
}

INSTANTIATE_TEST_SUITE_P(Layouts, LayoutTest, testing::ValuesIn(kLayouts), [](const auto& info) { return std::string(info.param.name); });

// Bad input on one rank is an error on all of them, and the job can go on.
TEST(LayoutTest, ABadBatchOnOneRankIsAnErrorOnAll) {
  const config::Config c = TinyConfig();
  const auto device = [] { return MakeReferenceDevice(); };
  const absl::Status s = RunWorld(c, 3, 1, device, [&](RankWorld* w) -> absl::Status {
    Text text = RandomText(c, 3, 1);
    if (w->rank == 1) text.ids[5] = 99;
    StepStats st;
    const absl::Status bad = w->model->ForwardBackward(text.Part(w->rank, 1), &st);
    if (bad.code() != absl::StatusCode::kInvalidArgument) return Internal("expected an error, got ", bad.ToString());
    if (bad.message().find("99") == absl::string_view::npos || bad.message().find("vocab_size") == absl::string_view::npos) return Internal("unclear: ", bad.ToString());
    if (w->rank != 1 && bad.message().find("rank 1") == absl::string_view::npos) return Internal("does not name the rank: ", bad.ToString());
    text.ids[5] = 1;
    return w->model->ForwardBackward(text.Part(w->rank, 1), &st);
  });
  EXPECT_TRUE(s.ok()) << s;
}

// R7: a NaN on one rank stops routing there; every rank gets that error, with and without the exchanges of capacity.
TEST(LayoutTest, NotANumberOnOneRankIsAnErrorOnAll) {
  for (const char* scope : {"", "rank", "global"}) {
    config::Config c = TinyConfig();
    if (*scope) {
      c.mutable_gate()->set_capacity_factor(1);
      c.mutable_gate()->set_capacity_scope(scope);
    }
    const absl::Status s = RunWorld(c, 4, 2, [] { return MakeReferenceDevice(); }, [&](RankWorld* w) -> absl::Status {
      const Text text = RandomText(c, 4, 1);
      if (w->rank == 1) w->model->pieces()[0].first->value.as<float>()[text.ids[5] * 12] = NAN;   // the embedding of its first token
      StepStats st;
      const absl::Status bad = w->model->ForwardBackward(text.Part(w->rank, 1), &st);
      // The ranks that share experts with rank 1 hear of it at once; the others when it has left.
      if (bad.ok()) return Internal("no error on rank ", w->rank);
      if (w->rank < 2 && bad.message().find("layers.0.moe") == absl::string_view::npos) return Internal("unclear: ", bad.ToString());
      if (w->rank == 0 && bad.message().find("rank 1") == absl::string_view::npos) return Internal("does not name the rank: ", bad.ToString());
      w->transport->Abort(bad);
      return absl::OkStatus();
    });
    EXPECT_TRUE(s.ok() || s.message().find("layers.0.moe") != absl::string_view::npos) << scope << ": " << s;
  }
}

}  // namespace
}  // namespace moe
