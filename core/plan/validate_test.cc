#include "core/plan/validate.h"

#include "core/config/config_io.h"
#include "core/config/expect_refused.h"

namespace moe {
namespace {

using Set = std::vector<std::pair<const char*, const char*>>;

config::Config Make(const Set& set) {
  config::Config c = *ParseConfig("ranks: 16 model { num_layers: 8 d_model: 256 num_heads: 8 num_kv_heads: 4 num_global_experts: 8 d_hidden: 512 } train { global_batch: 32 seq_len: 256 }", "base");
  for (const auto& [path, value] : set) EXPECT_TRUE(SetConfigField(&c, path, value).ok()) << path;
  return c;
}

TEST(ValidateLayoutTest, Accepted) {
  const Set cases[] = {
      {},
      {{"mesh.tp", "4"}, {"mesh.cp", "2"}, {"mesh.pp", "2"}, {"mesh.etp", "2"}},
      {{"mesh.pp", "8"}},
      {{"mesh.pp", "4"}, {"pipeline", "interleaved"}},
      {{"mesh.pp", "4"}, {"pipeline", "gpipe"}, {"pipeline.virtual_stages", "2"}},
      {{"mesh.pp", "16"}, {"pipeline.stage_layers", "8,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0"}},   // stages without layers
      {{"mesh.pp", "4"}, {"train.micro_batch", "100"}},                                      // fewer micro-batches than stages
      {{"ranks", "4"}, {"mesh.cp", "2"}, {"gate.capacity_factor", "1"}, {"gate.capacity_scope", "global"}, {"gate.drop_policy", "probability"}},
      {{"ranks", "4"}, {"gate.capacity_factor", "1"}, {"gate.capacity_scope", "global"}},
      {{"model.attention", "mla"}, {"model.kv_lora_rank", "32"}, {"model.qk_nope_head_dim", "16"}, {"model.v_head_dim", "16"}, {"mesh.tp", "8"}},
  };
  for (const Set& set : cases) EXPECT_TRUE(ValidateLayout(Make(set)).ok()) << ValidateLayout(Make(set));
}

TEST(ValidateLayoutTest, FieldValueAndNearest) {
  const struct { Set set; std::vector<std::string> parts; } cases[] = {
      {{{"mesh.pp", "3"}}, {"mesh.pp 3 does not divide ranks", "mesh.pp=2 or 4"}},
      {{{"mesh.tp", "8"}}, {"mesh.tp is 8, more than model.num_kv_heads, which is 4", "mesh.tp=4"}},
      {{{"ranks", "12"}, {"mesh.tp", "3"}}, {"mesh.tp is 3, no divisor of model.num_kv_heads, which is 4", "mesh.tp=2 or 4"}},
      {{{"mesh.cp", "2"}, {"train.seq_len", "254"}}, {"train.seq_len is 254, not divisible by 2 * mesh.cp, which is 4", "train.seq_len=252 or 256", "mesh.cp=1 or 127"}},
      {{{"mesh.cp", "2"}, {"train.seq_len", "255"}}, {"train.seq_len is 255", "mesh.cp=1"}},
      {{{"mesh.cp", "4"}, {"train.seq_len", "2"}}, {"train.seq_len is 2", "train.seq_len=8,"}},
      {{{"mesh.pp", "16"}}, {"mesh.pp is 16, more stages than layers: model.num_layers is 8", "mesh.pp=8", "pipeline.stage_layers"}},
      {{{"mesh.pp", "4"}, {"pipeline", "interleaved"}, {"pipeline.virtual_stages", "3"}}, {"pipeline.virtual_stages is 3 on mesh.pp=4", "in all 12, more than model.num_layers, which is 8", "pipeline.virtual_stages=2"}},
      {{{"mesh.pp", "4"}, {"pipeline.virtual_stages", "2"}}, {"pipeline.virtual_stages is 2 with pipeline.kind=1f1b", "pipeline.kind=interleaved"}},
      {{{"mesh.pp", "4"}, {"pipeline", "zero_bubble"}, {"pipeline.virtual_stages", "2"}}, {"pipeline.kind=zero_bubble"}},
      {{{"mesh.pp", "4"}, {"pipeline", "interleaved"}, {"train.global_batch", "24"}, {"train.micro_batch", "1"}}, {"train.micro_batch is 1, which makes 6 micro-batches", "rounds of mesh.pp, which is 4", "train.global_batch=16 or 32"}},
      {{{"mesh.pp", "4"}, {"pipeline", "interleaved"}, {"train.micro_batch", "5"}}, {"train.micro_batch is 5, which makes 2 micro-batches", "nearest that works: train.micro_batch=2"}},
      {{{"ranks", "12"}, {"mesh.etp", "3"}}, {"mesh.etp is 3, no divisor of model.d_hidden, which is 512", "mesh.etp=2 or 4"}},
      {{{"mesh.pp", "2"}, {"pipeline.stage_layers", "4,4,0"}}, {"pipeline.stage_layers", "names 3"}},
      {{{"mesh.pp", "2"}, {"pipeline.stage_layers", "4,5"}}, {"pipeline.stage_layers", "sum is 9", "8"}},
      {{{"mesh.cp", "2"}, {"gate.capacity_factor", "1"}, {"gate.capacity_scope", "global"}}, {"gate.drop_policy is position", "mesh.cp=2", "gate.drop_policy=probability"}},
      {{{"model.attention", "mla"}}, {"model.kv_lora_rank is 0", "model.v_head_dim is 0"}},
      {{{"model.attention", "mla"}, {"model.kv_lora_rank", "32"}, {"model.qk_nope_head_dim", "16"}, {"model.v_head_dim", "16"}, {"mesh.tp", "16"}}, {"mesh.tp is 16, more than model.num_heads, which is 8"}},
  };
  for (const auto& t : cases) ExpectRefused(ValidateLayout(Make(t.set)), t.parts);
}

TEST(ValidateLayoutTest, TheProposedValuesWork) {
  const Set base = {{"mesh.pp", "4"}, {"pipeline", "interleaved"}};
  for (const Set& fix : {Set{{"train.global_batch", "16"}, {"train.micro_batch", "1"}}, Set{{"train.global_batch", "32"}, {"train.micro_batch", "1"}}, Set{{"train.micro_batch", "2"}}}) {
    Set set = base;
    set.insert(set.end(), fix.begin(), fix.end());
    EXPECT_TRUE(ValidateLayout(Make(set)).ok()) << ValidateLayout(Make(set));
  }
}

TEST(ValidateLayoutTest, AllAtOnce) {
  ExpectRefused(ValidateLayout(Make({{"mesh.tp", "8"}, {"mesh.pp", "2"}, {"pipeline.stage_layers", "3,4"}, {"pipeline.virtual_stages", "1"}})), {"mesh.tp is 8", "\n", "sum is 7"});
}

TEST(ConfigWarningsTest, OneSentenceEach) {
  EXPECT_TRUE(ConfigWarnings(Make({})).empty());
  EXPECT_TRUE(ConfigWarnings(Make({{"mesh.pp", "4"}})).empty());
  auto w = ConfigWarnings(Make({{"mesh.pp", "4"}, {"train.micro_batch", "4"}}));
  ASSERT_EQ(w.size(), 1u);
  for (const char* part : {"2 micro-batches, fewer than the 4 pipeline stages", "60%", "train.global_batch", "train.micro_batch"}) EXPECT_NE(w[0].find(part), std::string::npos) << w[0];
  w = ConfigWarnings(Make({{"train.global_batch", "3"}}));
  ASSERT_EQ(w.size(), 1u);
  EXPECT_NE(w[0].find("13 data-parallel ranks compute nothing"), std::string::npos) << w[0];
  EXPECT_EQ(ConfigWarnings(Make({{"pipeline.stage_layers", "8"}})).size(), 1u);
}

TEST(CheckTrainableTest, WhatOnlyAPlanKnows) {
  EXPECT_TRUE(CheckTrainable(Make({})).ok());
  ExpectRefused(CheckTrainable(Make({{"model.attention", "mla"}, {"model.num_shared_experts", "2"}})), {"model.attention is mla", "model.num_shared_experts is 2", "moe plan"}, absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace moe
