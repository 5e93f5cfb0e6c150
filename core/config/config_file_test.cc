// Whole configurations: both formats, there and back, and what is wrong in them by line and path.
#include <cstdio>
#include <fstream>

#include "core/config/config_io.h"
#include "core/config/expect_refused.h"
#include "core/config/fields.h"
#include "nlohmann/json.hpp"

namespace moe {
namespace {

using Json = nlohmann::json;

// Every leaf set to something other than its default.
config::Config Everything() {
  config::Config c;
  for (const LeafField& f : ConfigLeaves()) {
    const std::string was = LeafDefault(f.leaf());
    bool set = false;
    for (const char* value : {"3", "0.125", "true", "false", "a \"b\"\\\t\n'é", "reference", "float64", "probability", "global", "hf", "inproc", "sgd", "constant", "debug", "mla", "gpipe", "layers", "inf", "1"}) {
      config::Config next = c;
      if (was == value || !SetConfigField(&next, f.path, value).ok()) continue;
      c = next;
      set = true;
      break;
    }
    EXPECT_TRUE(set) << f.path;
  }
  c.set_seed(18446744073709551615u);
  c.mutable_gate()->set_capacity_factor(1.0 / 3);
  return c;
}

TEST(ReadTest, TextAndJsonMeanTheSame) {
  auto text = ParseConfig("# a comment\nsteps: 7 model { top_k: 1 }\n\n gate < capacity_factor: 0 >", "x.textproto");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_TRUE(text->gate().has_capacity_factor());
  for (const char* json : {R"( {"steps": 7, "model": {"top_k": 1}, "gate": {"capacity_factor": 0}})", R"({"steps": "7", "model": {"topK": 1.0, "dModel": null}, "gate": {"capacityFactor": "0"}, "run": null})"}) {
    auto c = ParseConfig(json, "x.json");
    ASSERT_TRUE(c.ok()) << c.status();
    EXPECT_EQ(text->DebugString(), c->DebugString());
  }
  EXPECT_EQ(ParseConfig("", "empty")->DebugString(), "");
  EXPECT_EQ(ParseConfig(" {} ", "empty")->DebugString(), "");
}

TEST(ReadTest, RefusedText) {
  const struct { const char* text; std::vector<std::string> parts; } cases[] = {
      {"steps: 7\nmodel { d_modle: 4 }", {"line 2", "'model.d_modle'", "nearest: model.d_model"}},
      {"modle { top_k: 3 }", {"line 1", "'modle'", "model"}},
      {"steps: two", {"line 1, column 8: steps: Expected integer, got: two; it must be an integer, at least 0"}},
      {"model {\n  num_layers: 3\n\ttop_k: 2.5\n}", {"line 3", "model.top_k", "got: 2.5", "an integer, at least 1"}},
      {"model { d_model: \"4\" }", {"model.d_model", "an integer"}},
      {"model { tie_embeddings: maybe }", {"model.tie_embeddings", "maybe", "true or false"}},
      {"seed: -1", {"seed", "an integer, at least 0"}},
      {"steps: 99999999999999999999", {"steps", "out of range"}},
      {"device: cpu", {"device", "Expected string", "one of cpu, reference"}},
      {"run: night", {"run", "in quotes"}},
      {"ranks: 2 ranks: 3", {"ranks", "multiple times"}},
      {"model: 3", {"model", "Expected \"{\""}},
      {"model { top_k: 1", {"line 1"}},
      {"}", {"line 1"}},
      {"steps", {"line 1", "Expected \":\""}},
      {"run: 'x\ny'", {"line 1", "run", "cannot cross line"}},
      {"model { top_k: 0 }", {"model.top_k is 0", "at least 1"}},
      {"optimizer { lr: nan }", {"optimizer.lr is nan", "a number"}},
      {"optimizer { lr: 1e999 }", {"optimizer.lr is inf"}},
      {"device: \"gpu\"", {"device is 'gpu'", "one of cpu, reference"}},
      {"run: \"\\377\"", {"run is not text"}},
      {"[a.b]: 3", {"line 1"}},
      {"transport { kind: \"ucx\" } data { pth: \"x\" }", {"'data.pth'", "nearest: data.path"}},
  };
  for (const auto& t : cases) {
    const absl::Status s = ParseConfig(t.text, "x.textproto").status();
    ExpectRefused(s, t.parts);
    ExpectRefused(s, {"x.textproto: "});
  }
}

TEST(ReadTest, RefusedJson) {
  const struct { const char* text; std::vector<std::string> parts; } cases[] = {
      {R"({"model": {"d_modle": 4}})", {"'model.d_modle'", "nearest: model.d_model"}},
      {R"({"modle": {}})", {"'modle'", "model"}},
      {R"({"steps": "two"})", {"steps is 'two'", "an integer, at least 0"}},
      {R"({"steps": ""})", {"steps is ''", "an integer"}},
      {R"({"steps": 99999999999999999999})", {"steps is '99999999999999999999'"}},
      {R"({"model": {"top_k": 2.5}})", {"model.top_k is '2.5'", "an integer"}},
      {R"({"model": {"top_k": 0}})", {"model.top_k is 0", "at least 1"}},
      {R"({"model": {"top_k": true}})", {"model.top_k is 'true'", "an integer"}},
      {R"({"model": {"tie_embeddings": 1}})", {"model.tie_embeddings is '1'", "true or false"}},
      {R"({"model": 3})", {"model is '3'", "section"}},
      {R"({"gate": "switch"})", {"gate is 'switch'", "section"}},
      {R"({"steps": {}})", {"steps is an object", "an integer"}},
      {R"({"steps": [1]})", {"steps is a list"}},
      {R"({"device": 7})", {"device is '7'", "one of cpu, reference"}},
      {R"({"optimizer": {"lr": "NaN"}})", {"optimizer.lr is 'NaN'", "a number"}},
      {R"({"optimizer": {"lr": 1e999}})", {"1e999"}},
      {R"({"ranks": 2, "ranks": 3})", {"ranks stands twice"}},
      {R"({"model": {"top_k": 1}, "model": {"topK": 1}})", {"model stands twice"}},
      {R"({"model": {"top_k": 1, "topK": 1}})", {"model.top_k stands twice"}},
      {"{\"model\":\n {\"top_k\": 1}", {"not JSON", "line 2"}},
      {"{} x", {"not JSON"}},
      {"{steps: 3}", {"not JSON"}},
      {R"({"run": "\ud800"})", {"not JSON"}},
      {R"({"run": "a\u0000b"})", {"run is not text"}},
  };
  for (const auto& t : cases) {
    const absl::Status s = ParseConfig(t.text, "x.json").status();
    ExpectRefused(s, t.parts);
    ExpectRefused(s, {"x.json: "});
  }
}

TEST(ReadTest, DamagedFilesNeverCrash) {
  const std::string texts[] = {ConfigToText(Everything(), true), ConfigToJson(Everything(), true)};
  for (const std::string& whole : texts)
    for (size_t at = 0; at < whole.size(); at += 7) {
      std::string cut = whole.substr(0, at), changed = whole;
      changed[at] = "{}\":\0<#\\x\n"[at % 10];
      for (const std::string& t : {cut, changed}) {
        const auto c = ParseConfig(t, "damaged");
        EXPECT_TRUE(c.ok() || !c.status().message().empty());
      }
    }
  EXPECT_FALSE(ParseConfig(std::string(100000, '{'), "deep").ok());
  EXPECT_FALSE(ParseConfig("{\"model\":" + std::string(100000, '['), "deep").ok());
  std::string nested;
  for (int i = 0; i < 50000; ++i) nested += "model {";
  EXPECT_FALSE(ParseConfig(nested, "deep").ok());
}

TEST(ReadTest, Files) {
  const std::string path = testing::TempDir() + "/moe_config_file_test.textproto";
  std::ofstream(path) << "steps: 3";
  EXPECT_EQ(LoadConfig(path)->steps(), 3);
  { std::ofstream empty(path, std::ios::trunc); }
  EXPECT_TRUE(LoadConfig(path).ok()) << LoadConfig(path).status();
  std::ofstream(path) << std::string(2 << 20, ' ');
  ExpectRefused(LoadConfig(path).status(), {path, "not a configuration"});
  std::remove(path.c_str());
  ExpectRefused(LoadConfig(path).status(), {path, "No such file"}, absl::StatusCode::kNotFound);
  EXPECT_FALSE(LoadConfig(testing::TempDir()).ok());
}

TEST(WriteTest, BothFormatsReadBackWhole) {
  const config::Config all = Everything();
  for (bool full : {false, true}) {
    EXPECT_EQ(ParseConfig(ConfigToText(all, full), "text")->DebugString(), all.DebugString());
    EXPECT_EQ(ParseConfig(ConfigToJson(all, full), "json")->DebugString(), all.DebugString());
  }
}

TEST(WriteTest, OnlyWhatIsSet) {
  config::Config c;
  EXPECT_EQ(ConfigToText(c, false), "");
  EXPECT_EQ(Json::parse(ConfigToJson(c, false)), Json::object());
  c.set_steps(7);
  c.mutable_model()->set_top_k(1);
  c.mutable_data();   // a section without a set field is nothing
  c.set_run("a\"b");
  EXPECT_EQ(ConfigToText(c, false), "steps: 7\nrun: \"a\\\"b\"\nmodel {\n  top_k: 1\n}\n");
  EXPECT_EQ(Json::parse(ConfigToJson(c, false)), Json::parse(R"({"steps": 7, "run": "a\"b", "model": {"top_k": 1}})"));
}

TEST(WriteTest, FullListsEveryFieldWithItsEffectiveValue) {
  config::Config c;
  c.mutable_model()->set_top_k(1);
  const std::string text = ConfigToText(c, true);
  const Json json = Json::parse(ConfigToJson(c, true));
  for (const LeafField& f : ConfigLeaves()) {
    EXPECT_NE(text.find(f.leaf()->name()), std::string::npos) << f.path;
    Json at = json;
    for (const Field* part : f.chain) {
      ASSERT_TRUE(at.contains(part->name())) << f.path;
      at = Json(at[part->name()]);
    }
    const std::string value = at.is_null() ? "" : at.is_string() ? at.get<std::string>() : at.is_boolean() ? (at.get<bool>() ? "true" : "false") : ShortestText(at.get<double>());
    EXPECT_EQ(value, LeafText(c, f)) << f.path;
    EXPECT_EQ(at.is_null(), f.path == "gate.capacity_factor");
  }
  EXPECT_NE(text.find("\n  # capacity_factor is not set\n"), std::string::npos);   // dropless, not some default
  EXPECT_EQ(json["model"]["top_k"], 1);
  EXPECT_EQ(json["model"]["d_model"], config::ModelConfig().d_model());
  EXPECT_EQ(json["optimizer"]["lr"], config::OptimizerConfig().lr());
  EXPECT_EQ(json["resume"], false);
  EXPECT_EQ(ConfigToText(*ParseConfig(text, "full"), true), text);
  EXPECT_EQ(ConfigToText(*ParseConfig(json.dump(), "json"), true), text);
}

}  // namespace
}  // namespace moe
