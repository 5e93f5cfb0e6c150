// What the model is made of, over layouts: expert kinds and biases, dense layers, gates, losses, capacity, noise. Plain SGD in float64,
// so that no wrong factor on a gradient hides. Cases G1, G2, G4, G5, G8.
#include "tests/engine/parallel_run.h"

namespace moe {
namespace {

const char* const kVariants[] = {"gelu_bias", "relu_dense_first", "all_dense_tied", "hf_aux", "no_aux", "z_only", "capacity_probability", "capacity_rows", "switch_jitter", "one_kv_head_per_rank", "no_clipping", "infinity_norm"};

config::Config Variant(const std::string& name) {
  config::Config c = SweepConfig();
  c.mutable_model()->set_dtype("float64");
  if (name == "gelu_bias") {
    c.mutable_expert()->set_kind("gelu");
    c.mutable_expert()->set_bias(true);
  }
  if (name == "relu_dense_first") {
    c.mutable_expert()->set_kind("relu");
    c.mutable_expert()->set_bias(true);
    c.mutable_model()->set_num_dense_layers(1);
  }
  if (name == "all_dense_tied") {
    c.mutable_model()->set_num_dense_layers(4);
    c.mutable_model()->set_tie_embeddings(true);
  }
  if (name == "hf_aux") c.mutable_gate()->set_aux_loss("hf");
  if (name == "no_aux" || name == "z_only") c.mutable_gate()->set_aux_loss("none");
  if (name == "no_aux") c.mutable_gate()->set_z_loss_coef(0);
  if (name == "capacity_probability") {
    c.mutable_gate()->set_capacity_factor(0.8);
    c.mutable_gate()->set_capacity_scope("global");
    c.mutable_gate()->set_drop_policy("probability");
  }
  if (name == "capacity_rows") {   // more slots than routes: nothing is dropped whoever counts
    c.mutable_gate()->set_capacity_factor(8);
    c.mutable_gate()->set_min_capacity(1000);
  }
  if (name == "switch_jitter") {
    c.mutable_gate()->set_kind("switch");
    c.mutable_model()->set_top_k(1);
    c.mutable_gate()->set_jitter(0.1);
  }
  if (name == "one_kv_head_per_rank") c.mutable_model()->set_num_kv_heads(4);
  if (name == "no_clipping") c.mutable_optimizer()->set_clip_norm(0);
  if (name == "infinity_norm") {
    c.mutable_optimizer()->set_clip_norm_type("inf");
    c.mutable_optimizer()->set_clip_norm(0.01);   // below what comes
  }
  return c;
}

// One rank's outcome, computed once for all layouts.
const absl::StatusOr<Trained>& OneRank(const std::string& name) {
  static std::map<std::string, absl::StatusOr<Trained>> known;
  const auto at = known.find(name);
  return at != known.end() ? at->second : known.emplace(name, TrainOn(Variant(name), 1, [] { return MakeReferenceDevice(); }, 3)).first->second;
}

class VariantsTest : public ::testing::TestWithParam<std::tuple<const char*, Axes>> {};

TEST_P(VariantsTest, EqualsOneRank) {
  const auto& [name, axes] = GetParam();
  const absl::StatusOr<Trained>& one = OneRank(name);
  ASSERT_TRUE(one.ok()) << one.status();
  const std::string variant = name;
  if (variant == "capacity_probability") { ASSERT_GT(one->steps[0].dropped_routes, 0); }
  for (const char* kind : {"1f1b", "zero_bubble"}) {
    config::Config c = WithAxes(Variant(name), axes);
    c.mutable_pipeline()->set_kind(kind);
    // Capacity over a micro-batch drops other routes than capacity over the batch.
    c.mutable_train()->set_micro_batch(variant == "capacity_probability" ? 8 : 2);
    const auto got = TrainOn(c, axes.world(), [] { return MakeReferenceDevice(); }, 3);
    ASSERT_TRUE(got.ok()) << kind << ": " << got.status();
    ExpectSame(*got, *one, 1e-10, absl::StrCat(name, " ", axes.Name(), " ", kind));
    EXPECT_EQ(got->steps[0].dropped_routes, one->steps[0].dropped_routes);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, VariantsTest,
                         ::testing::Combine(::testing::ValuesIn(kVariants), ::testing::Values(Axes{2, 2, 1, 1, 2, 2}, Axes{1, 4, 1, 1, 1, 4}, Axes{1, 4, 1, 2, 8, 1}, Axes{2, 1, 2, 2, 2, 2}, Axes{1, 1, 4, 2, 1, 2})),
                         [](const auto& info) { return absl::StrCat(std::get<0>(info.param), "_", std::get<1>(info.param).Name()); });

}  // namespace
}  // namespace moe
