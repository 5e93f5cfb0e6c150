// One field at a time: setting, getting, limits, and what describes itself.
#include "core/config/config_io.h"

#include <cmath>
#include <set>

#include "core/config/expect_refused.h"
#include "core/config/fields.h"
#include "nlohmann/json.hpp"

namespace moe {
namespace {

using Json = nlohmann::json;

TEST(SetTest, EveryTypeByPath) {
  config::Config c;
  const std::pair<const char*, const char*> values[] = {{"model.top_k", "3"}, {"ranks", "7"}, {"seed", "18446744073709551615"}, {"resume", "true"}, {"optimizer.lr", "1e-3"},
                                                        {"run", "Ünicode \"quoted\""}, {"transport", "inproc"}, {"gate", "switch"}, {"gate.capacity_factor", "1.25"}};
  for (const auto& [path, value] : values) ASSERT_TRUE(SetConfigField(&c, path, value).ok()) << path;
  EXPECT_EQ(c.model().top_k(), 3);
  EXPECT_EQ(c.ranks(), 7);
  EXPECT_EQ(c.seed(), 18446744073709551615u);
  EXPECT_TRUE(c.resume());
  EXPECT_EQ(c.optimizer().lr(), 1e-3);
  EXPECT_EQ(c.transport().kind(), "inproc");
  EXPECT_EQ(c.gate().kind(), "switch");
  EXPECT_EQ(*GetConfigField(c, "optimizer.lr"), "0.001");
  EXPECT_EQ(*GetConfigField(c, "transport"), "inproc");
  EXPECT_EQ(*GetConfigField(c, "run"), "Ünicode \"quoted\"");
}

TEST(SetTest, GetGivesDefaults) {
  const config::Config c;
  EXPECT_EQ(*GetConfigField(c, "model.d_model"), absl::StrCat(config::ModelConfig().d_model()));
  EXPECT_EQ(*GetConfigField(c, "optimizer.eps"), "1e-08");
  EXPECT_EQ(*GetConfigField(c, "data.path"), "");
  EXPECT_EQ(*GetConfigField(c, "gate.capacity_factor"), "");
  EXPECT_EQ(*GetConfigField(c, "checkpoint.keep"), "2");
}

TEST(SetTest, AnEmptyValueUnsetsWhatHasNoDefault) {
  config::Config c;
  ASSERT_TRUE(SetConfigField(&c, "gate.capacity_factor", "0").ok());
  ASSERT_TRUE(c.gate().has_capacity_factor());
  ASSERT_TRUE(SetConfigField(&c, "gate.capacity_factor", "").ok());
  EXPECT_FALSE(c.gate().has_capacity_factor());
  ASSERT_TRUE(SetConfigField(&c, "run", "a").ok());
  ASSERT_TRUE(SetConfigField(&c, "run", "").ok());
  EXPECT_EQ(c.run(), "");
}

TEST(SetTest, Refusals) {
  const struct { const char *path, *value; std::vector<std::string> parts; } cases[] = {
      {"model.d_modle", "4", {"'model.d_modle'", "nearest: model.d_model"}},
      {"modle.d_model", "4", {"'modle.d_model'", "nearest: model.d_model"}},
      {"topk", "4", {"'topk'", "nearest: model.top_k"}},
      {"transprot", "ucx", {"'transprot'", "nearest: transport"}},
      {"", "4", {"there is no field ''"}},
      {"model.", "4", {"there is no field 'model.'"}},
      {"model.top_k.x", "4", {"'model.top_k.x'", "model.top_k"}},
      {"model", "big", {"'model' is a section", "model.top_k"}},
      {"model.top_k", "two", {"model.top_k is 'two'", "an integer, at least 1 and at most 1000000"}},
      {"model.top_k", "", {"model.top_k is ''", "an integer"}},
      {"model.top_k", "2.5", {"model.top_k is '2.5'", "an integer"}},
      {"model.top_k", "0", {"model.top_k is 0;", "at least 1"}},
      {"model.top_k", "1000001", {"model.top_k is 1000001", "at most 1000000"}},
      {"ranks", "99999999999", {"ranks is '99999999999'", "at most 10000000"}},
      {"steps", "-1", {"steps is -1", "at least 0"}},
      {"seed", "-1", {"seed is '-1'", "an integer, at least 0"}},
      {"optimizer.lr", "nan", {"optimizer.lr is 'nan'", "a number, at least 0 and at most 1000"}},
      {"optimizer.lr", "inf", {"optimizer.lr is 'inf'"}},
      {"optimizer.lr", "1e999", {"optimizer.lr is '1e999'"}},
      {"optimizer.lr", "-0.1", {"optimizer.lr is -0.1", "at least 0"}},
      {"optimizer.beta1", "1", {"optimizer.beta1 is 1;", "at most 0.999999"}},
      {"transport.timeout_s", "0", {"transport.timeout_s is 0", "at least 0.1"}},
      {"resume", "maybe", {"resume is 'maybe'", "true or false"}},
      {"transport", "smoke", {"transport.kind is 'smoke'", "one of ucx, inproc"}},
      {"device", "", {"device is ''", "one of cpu, reference"}},
      {"gate.drop_policy", "Position", {"gate.drop_policy is 'Position'", "position, probability"}},
      {"run", "\xff\xfe", {"run is not text", "UTF-8"}},
      {"run", "a\xed\xa0\x80", {"run is not text"}},
      {"run", "\xc0\x80", {"run is not text"}},
  };
  for (const auto& t : cases) {
    config::Config c;
    c.set_steps(5);
    ExpectRefused(SetConfigField(&c, t.path, t.value), t.parts);
    EXPECT_EQ(c.ShortDebugString(), "steps: 5") << t.path;   // untouched
  }
  config::Config c;
  ExpectRefused(GetConfigField(c, "model.d_modle").status(), {"nearest: model.d_model"});
  ExpectRefused(GetConfigField(c, "model").status(), {"'model' is a section"});
}

TEST(RangeTest, EveryDefaultIsWithinItsLimits) {
  config::Config c;
  for (const LeafField& f : ConfigLeaves()) {
    if (!f.leaf()->has_default_value()) continue;
    ASSERT_TRUE(SetLeaf(&c, f, LeafDefault(f.leaf())).ok()) << f.path;
  }
  EXPECT_TRUE(CheckConfigRanges(c).ok()) << CheckConfigRanges(c);
}

TEST(RangeTest, ChecksWhatIsSetByOtherMeans) {
  config::Config c;
  c.mutable_model()->set_norm_eps(std::nan(""));
  ExpectRefused(CheckConfigRanges(c), {"model.norm_eps is nan", "a number"});
  c.Clear();
  c.mutable_optimizer()->set_kind("lion");
  ExpectRefused(CheckConfigRanges(c), {"optimizer.kind is 'lion'", "one of adamw, sgd"});
  c.Clear();
  c.set_run(std::string("a\0b", 3));
  ExpectRefused(CheckConfigRanges(c), {"run is not text"});
}

TEST(DescribeTest, EveryFieldWithItsComment) {
  const Json all = Json::parse(DescribeConfig(nullptr));
  ASSERT_EQ(all.size(), ConfigLeaves().size());
  std::set<std::string> paths;
  for (const auto& f : all) {
    EXPECT_TRUE(paths.insert(f["path"].get<std::string>()).second) << f;
    EXPECT_FALSE(f["doc"].get<std::string>().empty()) << f["path"] << " has no comment in the .proto";
    EXPECT_TRUE(f["type"] == "integer" || f["type"] == "number" || f["type"] == "boolean" || f["type"] == "string") << f;
    EXPECT_EQ(f.contains("default"), f["path"] != "gate.capacity_factor") << f;
  }
  const auto of = [&](const char* path) {
    for (const auto& f : all)
      if (f["path"] == path) return f;
    return Json();
  };
  EXPECT_EQ(of("model.top_k"), Json::parse(R"({"path": "model.top_k", "type": "integer", "default": "2", "doc": "Experts that each token goes to.", "min": 1.0, "max": 1000000.0})"));
  EXPECT_EQ(of("transport.kind")["allowed"], "ucx,inproc");
  EXPECT_EQ(of("optimizer.eps")["default"], "1e-08");
  EXPECT_EQ(of("resume")["type"], "boolean");
  EXPECT_NE(of("optimizer.decay_steps")["doc"].get<std::string>().find("Step at which the cosine reaches its floor; a number of its own, so that"), std::string::npos);   // two lines of comment
  EXPECT_FALSE(of("gate.kind").contains("allowed"));
}

TEST(NumberTest, ShortestTextReadsBack) {
  for (double v : {0.1, 1.0 / 3, 1e-8, 1e22, 123456789012345680.0, 5e-324, -2.5, 0.0, 1e6, 65536.0}) EXPECT_EQ(std::strtod(ShortestText(v).c_str(), nullptr), v) << ShortestText(v);
  EXPECT_EQ(ShortestText(1000000), "1000000");
  EXPECT_EQ(ShortestText(0.003), "0.003");
}

}  // namespace
}  // namespace moe
