#include "core/config/config_io.h"

#include "core/config/validate.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace moe {
namespace {

const ModuleNames kNames = {{"mixtral", "switch"}, {"swiglu", "gelu"}, {"block"}};

// The error holds all the parts.
void ExpectRefused(const absl::Status& s, const std::vector<std::string>& parts) {
  ASSERT_FALSE(s.ok());
  for (const std::string& p : parts) EXPECT_NE(std::string(s.message()).find(p), std::string::npos) << "'" << p << "' is not in: " << s;
}

TEST(ConfigTest, SetsAndGetsByPath) {
  config::Config c;
  ASSERT_TRUE(SetConfigField(&c, "model.top_k", "3").ok());
  ASSERT_TRUE(SetConfigField(&c, "transport", "inproc").ok());
  ASSERT_TRUE(SetConfigField(&c, "resume", "true").ok());
  ASSERT_TRUE(SetConfigField(&c, "optimizer.lr", "1e-3").ok());
  EXPECT_EQ(c.model().top_k(), 3);
  EXPECT_EQ(c.transport().kind(), "inproc");
  EXPECT_EQ(*GetConfigField(c, "transport.kind"), "inproc");
  EXPECT_EQ(*GetConfigField(c, "optimizer.lr"), "0.001");
  EXPECT_EQ(*GetConfigField(c, "model.d_model"), "256");
  EXPECT_EQ(*GetConfigField(c, "gate.capacity_factor"), "");
}

TEST(ConfigTest, RefusesWithPathValueAndRemedy) {
  config::Config c;
  ExpectRefused(SetConfigField(&c, "model.d_modle", "4"), {"model.d_modle", "model.d_model"});
  ExpectRefused(SetConfigField(&c, "model.top_k", "two"), {"model.top_k", "two", "integer"});
  ExpectRefused(SetConfigField(&c, "model.top_k", "0"), {"model.top_k", "0", "at least 1"});
  ExpectRefused(SetConfigField(&c, "optimizer.lr", "nan"), {"optimizer.lr", "number"});
  ExpectRefused(SetConfigField(&c, "transport", "smoke"), {"transport.kind", "smoke", "ucx,inproc"});
  ExpectRefused(SetConfigField(&c, "model", "big"), {"model", "section", "model.top_k"});
  ExpectRefused(SetConfigField(&c, "ranks", "99999999999"), {"ranks", "integer"});
  EXPECT_EQ(c.DebugString(), "");   // untouched
}

TEST(ConfigTest, ReadsTextAndJson) {
  auto text = ParseConfig("steps: 7 model { top_k: 1 } gate { capacity_factor: 0 }", "x.textproto");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_TRUE(text->gate().has_capacity_factor());
  auto json = ParseConfig(R"( {"steps": 7, "model": {"top_k": 1}, "gate": {"capacity_factor": 0}})", "x.json");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(text->DebugString(), json->DebugString());
}

TEST(ConfigTest, BadFilesNameFileLineAndField) {
  ExpectRefused(ParseConfig("steps: 7\nmodel { d_modle: 4 }", "x.textproto").status(), {"x.textproto", "line 2", "d_modle", "model.d_model"});
  ExpectRefused(ParseConfig("steps: 7\nmodel { top_k: 0 }", "x.textproto").status(), {"x.textproto", "model.top_k", "at least 1"});
  ExpectRefused(ParseConfig(R"({"model": {"d_modle": 4}})", "x.json").status(), {"x.json", "d_modle"});
  ExpectRefused(LoadConfig("/nowhere/x.textproto").status(), {"/nowhere/x.textproto"});
}

TEST(ConfigTest, FullTextReadsBackAndListsEveryField) {
  config::Config c;
  ASSERT_TRUE(SetConfigField(&c, "model.top_k", "1").ok());
  const std::string full = ConfigToText(c, true);
  for (const char* field : {"d_model: 256", "top_k: 1", "warmup_steps", "val_fraction"}) EXPECT_NE(full.find(field), std::string::npos) << field;
  EXPECT_EQ(full.find("capacity_factor"), std::string::npos);   // unset has a meaning of its own
  EXPECT_EQ(ConfigToText(*ParseConfig(full, "full"), true), full);
  EXPECT_EQ(ConfigToText(*ParseConfig(*ConfigToJson(c, true), "json"), true), full);
}

TEST(ConfigTest, DescribesEveryFieldWithItsComment) {
  const auto all = nlohmann::json::parse(DescribeConfig());
  ASSERT_GT(all.size(), 60u);
  for (const auto& f : all) {
    EXPECT_TRUE(f.contains("path") && f.contains("type")) << f;
    if (f["path"] == "model.top_k") {
      EXPECT_EQ(f["default"], "2");
      EXPECT_EQ(f["doc"], "Experts that each token goes to.");
      EXPECT_EQ(f["min"], 1);
    }
  }
}

TEST(ValidateTest, DefaultsAreValid) { EXPECT_TRUE(ValidateConfig(config::Config(), kNames).ok()); }

TEST(ValidateTest, FieldsThatDoNotFitEachOther) {
  const struct { std::vector<std::pair<const char*, const char*>> set; std::vector<std::string> parts; } cases[] = {
      {{{"model.top_k", "9"}}, {"model.top_k is 9", "num_global_experts", "8"}},
      {{{"model.num_kv_heads", "3"}}, {"model.num_heads is 8", "num_kv_heads", "3"}},
      {{{"model.d_model", "260"}}, {"model.d_model is 260", "num_heads", "8"}},
      {{{"model.head_dim", "7"}}, {"7", "even"}},
      {{{"model.num_dense_layers", "5"}}, {"num_dense_layers is 5", "num_layers", "4"}},
      {{{"model.dtype", "float64"}}, {"float64", "device=reference"}},
      {{{"gate", "switch"}}, {"model.top_k is 2", "model.top_k=1"}},
      {{{"gate", "guess"}}, {"gate.kind", "guess", "mixtral, switch"}},
      {{{"expert", "x"}}, {"expert.kind", "swiglu"}},
      {{{"partition", "x"}}, {"partition.kind", "block"}},
      {{{"ranks", "4"}, {"mesh.ep", "3"}}, {"mesh.ep 3", "ranks", "4"}},
      {{{"ranks", "4"}, {"mesh.dp", "2"}}, {"mesh.dp 2", "ranks is 4"}},
      {{{"mesh.tp", "2"}}, {"mesh.tp is 2"}},
  };
  for (const auto& t : cases) {
    config::Config c;
    for (const auto& [path, value] : t.set) ASSERT_TRUE(SetConfigField(&c, path, value).ok()) << path;
    ExpectRefused(ValidateConfig(c, kNames), t.parts);
  }
}

}  // namespace
}  // namespace moe
