#include "core/plan/report/parameters.h"

#include "core/config/config_io.h"
#include "gtest/gtest.h"

namespace moe {
namespace {

// Published totals, billions; sources in the files. `active` is given with two or three digits there: 2% allow for the rounding.
TEST(ParametersTest, PublishedTotals) {
  const struct { const char* file; double total, active; } models[] = {
      {"mixtral_8x7b_64", 46.7, 12.9}, {"qwen3_235b_a22b_256", 235.1, 22.2}, {"deepseek_v3_2048", 671.0, 37}, {"trillion_1_75", 1750, 0}};
  for (const auto& m : models) {
    const auto c = LoadConfig(std::string("trainer/configs/") + m.file + ".textproto");
    ASSERT_TRUE(c.ok()) << c.status();
    const ModelParameters p = CountModel(*c);
    EXPECT_NEAR(static_cast<double>(p.whole.total()) / 1e9, m.total, 0.01 * m.total) << m.file;
    if (m.active > 0) { EXPECT_NEAR(static_cast<double>(p.active_per_token) / 1e9, m.active, 0.02 * m.active) << m.file; }
  }
}

config::Config Small(const std::vector<std::pair<const char*, const char*>>& set) {
  config::Config c = *ParseConfig("model { vocab_size: 16 num_layers: 3 d_model: 8 num_heads: 4 num_kv_heads: 2 num_global_experts: 4 top_k: 2 d_hidden: 6 num_dense_layers: 1 d_hidden_dense: 10 }", "small");
  for (const auto& [path, value] : set) EXPECT_TRUE(SetConfigField(&c, path, value).ok()) << path;
  return c;
}

TEST(ParametersTest, ByHand) {
  const ModelParameters p = CountModel(Small({}));
  const int64_t attention = 8 * (8 + 4 + 4) + 8 * 8, vocabulary = 16 * 8;
  EXPECT_EQ(p.whole.dense, 2 * vocabulary + 3 * attention + 3 * 8 * 10);
  EXPECT_EQ(p.whole.replicated, 8 + 3 * 16 + 2 * 8 * 4);
  EXPECT_EQ(p.whole.expert, 2 * 4 * 3 * 8 * 6);
  EXPECT_EQ(p.active_per_token, p.whole.total() - 2 * 2 * 3 * 8 * 6);
  EXPECT_EQ(CountModel(Small({{"model.tie_embeddings", "true"}})).whole.dense, p.whole.dense - vocabulary);
  EXPECT_EQ(CountModel(Small({{"expert", "gelu"}, {"expert.bias", "true"}})).whole.expert, 2 * 4 * (2 * 8 * 6 + 6 + 8));
}

// The parts of all ranks are the whole: dense over tp, experts over ep and etp, replicated on each.
TEST(ParametersTest, RanksShareTheWhole) {
  const config::Config c = Small({{"ranks", "8"}, {"mesh.tp", "2"}, {"mesh.pp", "2"}, {"mesh.ep", "2"}, {"mesh.etp", "2"}, {"pipeline.stage_layers", "1,2"}});
  const Mesh mesh = *MeshFromConfig(8, c.mesh(), 4);
  const auto chunks = *PlaceLayers(c, 2);
  ParameterCounts sum;
  for (const Chunk& chunk : chunks) sum += CountRank(c, mesh, {chunk});
  const ModelParameters p = CountModel(c);
  EXPECT_EQ(sum.dense * 2, p.whole.dense);
  EXPECT_EQ(sum.replicated, p.whole.replicated);
  EXPECT_EQ(sum.expert * 4, p.whole.expert);
  EXPECT_EQ(CountRank(c, mesh, {chunks[0]}).expert, 0);   // a stage without MoE layers
  EXPECT_EQ(ExpertsPerRank(c, mesh), 2);
}

TEST(ParametersTest, TiedEmbeddingsAreHeldByBothEnds) {
  const config::Config c = Small({{"mesh.pp", "2"}, {"pipeline.stage_layers", "1,2"}, {"model.tie_embeddings", "true"}}), untied = Small({{"mesh.pp", "2"}, {"pipeline.stage_layers", "1,2"}});
  const Mesh mesh = *MeshFromConfig(2, c.mesh(), 4);
  const auto chunks = *PlaceLayers(c, 2);
  EXPECT_EQ(CountRank(c, mesh, {chunks[1]}).dense, CountRank(untied, mesh, {chunks[1]}).dense);
  EXPECT_EQ(CountRank(c, mesh, chunks).dense, CountRank(untied, mesh, chunks).dense - 16 * 8);
}

}  // namespace
}  // namespace moe
