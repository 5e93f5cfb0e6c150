#include <numeric>

#include "absl/strings/match.h"
#include "core/plan/schedule.h"
#include "gtest/gtest.h"

namespace moe {
namespace {

config::Config Model(int64_t layers) {
  config::Config c;
  c.mutable_model()->set_num_layers(layers);
  return c;
}

std::vector<int64_t> Sizes(const config::Config& c, int64_t stages) {
  const auto chunks = PlaceLayers(c, stages);
  EXPECT_TRUE(chunks.ok()) << chunks.status();
  std::vector<int64_t> out;
  if (!chunks.ok()) return out;
  int64_t first = 0;
  for (size_t i = 0; i < chunks->size(); ++i) {
    const Chunk& k = (*chunks)[i];
    EXPECT_EQ(k.first_layer, first);
    EXPECT_EQ(k.stage, static_cast<int64_t>(i) % stages);
    EXPECT_EQ(k.embedding, i == 0);
    EXPECT_EQ(k.head, i + 1 == chunks->size());
    first += k.num_layers;
    out.push_back(k.num_layers);
  }
  EXPECT_EQ(first, c.model().num_layers());
  return out;
}

void ExpectRefused(const config::Config& c, int64_t stages, std::vector<std::string> words) {
  const absl::Status s = PlaceLayers(c, stages).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument);
  for (const std::string& w : words) EXPECT_TRUE(absl::StrContains(s.message(), w)) << s << " lacks " << w;
}

TEST(PlaceLayers, ByNumber) {
  config::Config c = Model(10);
  c.mutable_pipeline()->set_balance("layers");
  EXPECT_EQ(Sizes(c, 1), (std::vector<int64_t>{10}));
  EXPECT_EQ(Sizes(c, 4), (std::vector<int64_t>{3, 3, 2, 2}));
  c.mutable_pipeline()->set_kind("interleaved");
  EXPECT_EQ(Sizes(c, 2), (std::vector<int64_t>{3, 3, 2, 2}));
  EXPECT_EQ(Sizes(c, 1), (std::vector<int64_t>{10}));   // nothing to interleave
}

TEST(PlaceLayers, ByList) {
  config::Config c = Model(16);
  c.mutable_pipeline()->set_stage_layers("3,5,8,0");
  EXPECT_EQ(Sizes(c, 4), (std::vector<int64_t>{3, 5, 8, 0}));
  c.mutable_pipeline()->set_virtual_stages(2);
  EXPECT_EQ(Sizes(c, 2), (std::vector<int64_t>{3, 5, 8, 0}));
  ExpectRefused(c, 4, {"pipeline.stage_layers is '3,5,8,0'", "names 4", "there are 8", "mesh.pp 4 x pipeline.virtual_stages 2"});
  c = Model(15);
  c.mutable_pipeline()->set_stage_layers("3,5,8,0");
  ExpectRefused(c, 4, {"sum is 16", "model.num_layers, which is 15"});
  for (const char* bad : {"3,x,4,4", "3,-1,9,4", "3,,8,4", "3,99,1,1"}) {
    c.mutable_pipeline()->set_stage_layers(bad);
    ExpectRefused(c, 4, {"pipeline.stage_layers", bad, "is not a number of layers"});
  }
  c = Model(2);   // more stages than layers, said in so many words
  c.mutable_pipeline()->set_stage_layers("1,0,0,1");
  EXPECT_EQ(Sizes(c, 4), (std::vector<int64_t>{1, 0, 0, 1}));
}

TEST(PlaceLayers, RefusesMoreStagesThanLayers) {
  ExpectRefused(Model(4), 8, {"mesh.pp 8", "model.num_layers, which is 4", "at most mesh.pp=4", "pipeline.stage_layers"});
  config::Config c = Model(4);
  c.mutable_pipeline()->set_kind("interleaved");
  c.mutable_pipeline()->set_virtual_stages(3);
  ExpectRefused(c, 2, {"mesh.pp 2 x pipeline.virtual_stages 3", "6 virtual stages", "pipeline.virtual_stages=2"});
}

TEST(PlaceLayers, ByCostCountsTheHead) {
  config::Config c = Model(8);
  EXPECT_EQ(Sizes(c, 4), (std::vector<int64_t>{2, 2, 2, 2}));   // 256 bytes of vocabulary: nothing
  // D V equal to about two layers of
  //   projections 2 D H hd + 2 D KV hd = 2 * 256^2 + 2 * 256 * 128, scores 2 * 256 * 128.5, router 256 * 8, experts 2 * 3 * 256 * 512
  const int64_t layer = 2 * 256 * 256 + 2 * 256 * 128 + 2 * 256 * 128 + 256 * 8 + 2 * 3 * 256 * 512;
  c.mutable_model()->set_vocab_size(2 * layer / 256);
  EXPECT_EQ(Sizes(c, 2), (std::vector<int64_t>{5, 3}));
  c.mutable_model()->set_vocab_size(20 * layer / 256);
  EXPECT_EQ(Sizes(c, 2), (std::vector<int64_t>{7, 1}));   // never an empty stage
}

TEST(PlaceLayers, ByCostCountsDenseLayersAndAttention) {
  config::Config c = Model(6);
  c.mutable_model()->set_num_dense_layers(2);
  c.mutable_model()->set_d_hidden_dense(512 * 2 * 4);   // a dense layer works as much as four expert layers, nearly
  EXPECT_EQ(Sizes(c, 3), (std::vector<int64_t>{1, 1, 4}));
  c.mutable_train()->set_seq_len(1000000);   // now attention is all there is
  EXPECT_EQ(Sizes(c, 3), (std::vector<int64_t>{2, 2, 2}));
}

// The largest part is as small as it can be: against all splits.
TEST(PlaceLayers, ByCostIsOptimal) {
  for (int64_t dense = 0; dense <= 7; ++dense) {
    config::Config c = Model(7);
    c.mutable_model()->set_num_dense_layers(dense);
    c.mutable_model()->set_d_hidden_dense(3000);
    c.mutable_model()->set_vocab_size(5000);
    const double attention = 2 * 256 * 256 + 2 * 256 * 128 + 256 * 257, expert = 256 * 8 + 2 * 3 * 256 * 512, dense_cost = 3.0 * 256 * 3000;
    std::vector<double> cost(7);
    for (int64_t l = 0; l < 7; ++l) cost[l] = attention + (l < dense ? dense_cost : expert);
    cost[6] += 256.0 * 5000;
    const auto largest = [&](const std::vector<int64_t>& sizes) {
      double most = 0;
      int64_t at = 0;
      for (int64_t n : sizes) {
        most = std::max(most, std::accumulate(cost.begin() + at, cost.begin() + at + n, 0.0));
        at += n;
      }
      return most;
    };
    double best = 1e300;
    for (int64_t a = 1; a <= 5; ++a)
      for (int64_t b = 1; a + b <= 6; ++b) best = std::min(best, largest({a, b, 7 - a - b}));
    EXPECT_NEAR(largest(Sizes(c, 3)), best, 1e-6 * best) << dense;
  }
}

TEST(PlaceLayers, ManyLayersAndStages) {
  const config::Config c = Model(1000);
  for (int64_t stages : {1, 7, 64, 500, 1000}) {
    const std::vector<int64_t> sizes = Sizes(c, stages);
    EXPECT_EQ(static_cast<int64_t>(sizes.size()), stages);
    EXPECT_LE(*std::max_element(sizes.begin(), sizes.end()), (1000 + stages - 1) / stages);
  }
}

TEST(VirtualStages, Default) {
  config::Config c;
  EXPECT_EQ(VirtualStages(c, 4), 1);
  c.mutable_pipeline()->set_kind("interleaved");
  EXPECT_EQ(VirtualStages(c, 4), 2);
  EXPECT_EQ(VirtualStages(c, 1), 1);
  c.mutable_pipeline()->set_virtual_stages(3);
  EXPECT_EQ(VirtualStages(c, 4), 3);
}

TEST(MicroBatchSize, Choices) {
  config::Config c;
  EXPECT_EQ(MicroBatchSize(c, 1, 24), 24);
  EXPECT_EQ(MicroBatchSize(c, 1, 0), 1);
  EXPECT_EQ(MicroBatchSize(c, 2, 24), 3);   // 8 of them
  EXPECT_EQ(MicroBatchSize(c, 4, 3), 1);
  EXPECT_EQ(MicroBatchSize(c, 2, 18), 2);   // 9 of them
  c.mutable_pipeline()->set_kind("interleaved");
  EXPECT_EQ(MicroBatchSize(c, 2, 18), 1);   // 9 would not do
  EXPECT_EQ(MicroBatchSize(c, 2, 20), 2);
  c.mutable_train()->set_micro_batch(5);
  EXPECT_EQ(MicroBatchSize(c, 4, 24), 5);
}

}  // namespace
}  // namespace moe
