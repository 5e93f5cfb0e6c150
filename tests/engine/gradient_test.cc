// Every parameter's gradient of the whole model against finite differences of its total loss, in float64.
#include <cmath>

#include "gtest/gtest.h"
#include "tests/engine/model_fixture.h"

namespace moe {
namespace {

config::Config Variant(const std::string& name) {
  config::Config c = TinyConfig();
  c.mutable_model()->set_dtype("float64");
  if (name == "tied") c.mutable_model()->set_tie_embeddings(true);
  if (name == "dense_first") c.mutable_model()->set_num_dense_layers(1);
  if (name == "all_dense") c.mutable_model()->set_num_dense_layers(2);
  if (name == "hf_aux") c.mutable_gate()->set_aux_loss("hf");
  if (name == "gelu_bias") { c.mutable_expert()->set_kind("gelu"); c.mutable_expert()->set_bias(true); }
  if (name == "gelu_tanh") c.mutable_expert()->set_kind("gelu_tanh");
  if (name == "micro_batches") c.mutable_train()->set_micro_batch(1);
  if (name == "capacity") c.mutable_gate()->set_capacity_factor(0.8);
  if (name == "switch_jitter") {
    c.mutable_gate()->set_kind("switch");
    c.mutable_model()->set_top_k(1);
    c.mutable_gate()->set_jitter(0.1);
    c.mutable_gate()->set_capacity_factor(1);
    c.mutable_gate()->set_drop_policy("probability");
  }
  return c;
}

class GradientTest : public testing::TestWithParam<const char*> {};

TEST_P(GradientTest, IsTheSlopeOfTheTotalLoss) {
  const config::Config c = Variant(GetParam());
  auto lone = MakeLone(c, MakeReferenceDevice());
  ASSERT_TRUE(lone.ok()) << lone.status();
  Model& m = *lone->model;
  const Text text = RandomText(c, 3, 5);
  StepStats s;
  ASSERT_TRUE(m.ForwardBackward(text.Part(0, 3), &s).ok());
  EXPECT_EQ(s.tokens, 13);

  std::vector<std::vector<double>> gradients;
  double largest = 0;
  for (auto& p : m.params()->params()) {
    gradients.emplace_back(p.grad.as<double>(), p.grad.as<double>() + p.size());
    for (double g : gradients.back()) largest = std::max(largest, std::abs(g));
  }
  const auto loss = [&] {
    StepStats t;
    EXPECT_TRUE(m.ForwardBackward(text.Part(0, 3), &t).ok());
    return t.total_loss;
  };
  size_t which = 0;
  for (auto& p : m.params()->params()) {
    const std::vector<double>& g = gradients[which++];
    // A stride that is prime to the sizes visits all experts, rows and columns.
    for (int64_t i = 0; i < p.size(); i += std::max<int64_t>(1, p.size() / 24 + 1)) {
      double& w = p.value.as<double>()[i];
      const double old = w, step = 1e-5;
      w = old + step;
      const double up = loss();
      w = old - step;
      const double down = loss();
      w = old;
      EXPECT_NEAR((up - down) / (2 * step), g[i], 2e-7 * std::max(1.0, largest)) << GetParam() << " " << p.name << "[" << i << "]";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, GradientTest, testing::Values("plain", "tied", "dense_first", "all_dense", "hf_aux", "gelu_bias", "gelu_tanh", "micro_batches", "capacity", "switch_jitter"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace moe
