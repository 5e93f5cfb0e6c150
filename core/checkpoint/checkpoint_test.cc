// One rank: the files, and what damaged ones lead to. Several ranks: tests/engine/checkpoint_blocks_test.cc.
#include "core/checkpoint/checkpoint.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_format.h"
#include "core/checkpoint/safetensors.h"
#include "core/device/reference/reference_device.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace moe {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Floats = std::vector<float>;

std::string Folder(const std::string& name) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR") ? std::getenv("TEST_TMPDIR") : "/tmp") + "/" + name;
  fs::remove_all(path);
  fs::remove_all(path + ".tmp");
  return path;
}

TensorView View(Floats* v, const std::vector<int64_t>& shape) { return TensorView(v->data(), DType::kF32, shape); }

absl::Status Save(const std::string& path, const std::vector<CheckpointTensor>& tensors, const CheckpointMeta& meta = {}) {
  return SaveCheckpoint(MakeReferenceDevice().get(), nullptr, path, meta, tensors);
}
absl::StatusOr<CheckpointMeta> Load(const std::string& path, const std::vector<CheckpointTensor>& tensors) {
  return LoadCheckpoint(MakeReferenceDevice().get(), nullptr, path, tensors);
}

Json ReadJson(const std::string& path) {
  std::ifstream f(path);
  return Json::parse(f);
}
void WriteJson(const std::string& path, const Json& json) { std::ofstream(path) << json.dump(1); }

Floats Count(int64_t n, float first = 0) {
  Floats v(n);
  for (int64_t i = 0; i < n; ++i) v[i] = first + static_cast<float>(i);
  return v;
}

// "w" of 4 x 6: [0:4,0:2], [0:2,2:6] and [2:4,2:6]; "b" of 3, whole; "none" of 0 x 5.
struct Sample {
  Floats left = {0, 1, 6, 7, 12, 13, 18, 19}, upper = {2, 3, 4, 5, 8, 9, 10, 11}, lower = {14, 15, 16, 17, 20, 21, 22, 23}, bias = {-1, -2, -3}, none;
  std::vector<CheckpointTensor> tensors() {
    return {{"w", View(&left, {4, 2}), {4, 6}, {0, 0}}, {"w", View(&upper, {2, 4}), {4, 6}, {0, 2}}, {"b", View(&bias, {3}), {}, {}}, {"w", View(&lower, {2, 4}), {4, 6}, {2, 2}},
            {"none", View(&none, {0, 5}), {}, {}}};
  }
};

std::string SaveSample(const std::string& name) {
  const std::string path = Folder(name);
  Sample s;
  CheckpointMeta meta;
  meta.step = 12;
  meta.config = "model {}";
  meta.user_json = R"({"mine":[7]})";
  const absl::Status saved = Save(path, s.tensors(), meta);
  EXPECT_TRUE(saved.ok()) << saved;
  return path;
}

TEST(CheckpointFilesTest, ManifestListsTheBlocksOfEveryTensor) {
  const std::string path = SaveSample("manifest");
  const Json m = ReadJson(path + "/manifest.json");
  EXPECT_EQ(m["version"], 2);
  EXPECT_EQ(m["step"], 12);
  EXPECT_EQ(m["world_size"], 1);
  ASSERT_EQ(m["tensors"].size(), 3u);
  const Json& w = m["tensors"][0];
  EXPECT_EQ(w["name"], "w");
  EXPECT_EQ(w["dtype"], "F32");
  EXPECT_EQ(w["shape"], Json({4, 6}));
  ASSERT_EQ(w["blocks"].size(), 3u);
  const Sample s;
  EXPECT_EQ(w["blocks"][1], Json({{"file", "shard-00000.safetensors"}, {"begin", {0, 2}}, {"shape", {2, 4}}, {"checksum", absl::StrFormat("%016x", Checksum(s.upper.data(), 32))}}));
  // A tensor in one piece: as in version 1.
  EXPECT_EQ(m["tensors"][1], Json({{"name", "b"}, {"dtype", "F32"}, {"shape", {3}}, {"file", "shard-00000.safetensors"}, {"checksum", absl::StrFormat("%016x", Checksum(s.bias.data(), 12))}}));

  auto shard = SafetensorsReader::Open(path + "/shard-00000.safetensors");
  ASSERT_TRUE(shard.ok()) << shard.status();
  EXPECT_EQ(*(*shard)->ReadFloats("b"), s.bias);
  EXPECT_EQ(*(*shard)->ReadFloats("w[0:4,0:2]"), s.left);
  EXPECT_EQ(*(*shard)->ReadFloats("w[2:4,2:6]"), s.lower);
  EXPECT_EQ((*shard)->tensors().at("none").shape, (std::vector<int64_t>{0, 5}));
  EXPECT_EQ((*shard)->tensors().size(), 5u);
  EXPECT_FALSE(fs::exists(path + ".tmp"));
}

TEST(CheckpointFilesTest, LoadsWholeAndInOtherBlocks) {
  const std::string path = SaveSample("blocks");
  Floats w(24), middle(8), row(6), bias(2), none;
  const auto meta = Load(path, {{"w", View(&w, {4, 6}), {}, {}}, {"w", View(&middle, {4, 2}), {4, 6}, {0, 1}}, {"w", View(&row, {1, 6}), {4, 6}, {2, 0}}, {"b", View(&bias, {2}), {3}, {1}},
                                {"w", View(&none, {0, 6}), {4, 6}, {4, 0}}, {"none", View(&none, {0, 5}), {}, {}}});
  ASSERT_TRUE(meta.ok()) << meta.status();
  EXPECT_EQ(meta->step, 12);
  EXPECT_EQ(meta->config, "model {}");
  EXPECT_EQ(meta->user_json, R"({"mine":[7]})");
  EXPECT_EQ(w, Count(24));
  EXPECT_EQ(middle, (Floats{1, 2, 7, 8, 13, 14, 19, 20}));
  EXPECT_EQ(row, Count(6, 12));
  EXPECT_EQ(bias, (Floats{-2, -3}));
}

// The files of a version 1 checkpoint, as they were written: whole tensors, one file each.
TEST(CheckpointFilesTest, Version1IsReadWholeAndInBlocks) {
  const std::string path = Folder("version1");
  fs::create_directories(path);
  const Floats w = Count(24), b = Count(3, 100);
  Json tensors = Json::array();
  for (const auto& [name, file, value, shape] : std::vector<std::tuple<std::string, std::string, const Floats*, std::vector<int64_t>>>{
           {"w", "shard-00000.safetensors", &w, {4, 6}}, {"optimizer.momentum.w", "shard-00001.safetensors", &b, {3}}}) {
    const auto sums = WriteSafetensors(path + "/" + file, {{name, "F32", shape, value->data()}});
    ASSERT_TRUE(sums.ok()) << sums.status();
    tensors.push_back({{"name", name}, {"dtype", "F32"}, {"shape", shape}, {"file", file}, {"checksum", absl::StrFormat("%016x", (*sums)[0])}});
  }
  const Json manifest = {{"format", "libmoe-checkpoint"}, {"version", 1}, {"step", 3}, {"world_size", 2}, {"config", "c"}, {"user", {{"mine", 7}}}, {"tensors", tensors}};
  WriteJson(path + "/manifest.json", manifest);
  Floats whole(24), columns(8), state(3);
  const std::vector<CheckpointTensor> wanted = {{"w", View(&whole, {4, 6}), {}, {}}, {"w", View(&columns, {4, 2}), {4, 6}, {0, 4}}, {"optimizer.momentum.w", View(&state, {3}), {}, {}}};
  const auto meta = Load(path, wanted);
  ASSERT_TRUE(meta.ok()) << meta.status();
  EXPECT_EQ(meta->step, 3);
  EXPECT_EQ(meta->user_json, R"({"mine":7})");
  EXPECT_EQ(whole, w);
  EXPECT_EQ(columns, (Floats{4, 5, 10, 11, 16, 17, 22, 23}));
  EXPECT_EQ(state, b);
  // Blocks are not of that version, and versions to come are not read.
  Json changed = manifest;
  changed["tensors"][0] = {{"name", "w"}, {"dtype", "F32"}, {"shape", {4, 6}}, {"blocks", Json::array()}};
  WriteJson(path + "/manifest.json", changed);
  EXPECT_EQ(Load(path, wanted).status().code(), absl::StatusCode::kDataLoss);
  changed = manifest;
  changed["version"] = 3;
  WriteJson(path + "/manifest.json", changed);
  const absl::Status s = Load(path, wanted).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(s.message().find("version 3"), absl::string_view::npos) << s;
}

// Whatever is wrong: the error tells where, and nothing has been changed.
class DamageTest : public testing::Test {
 protected:
  void SetUp() override { path_ = SaveSample("damage"); }
  // To be edited; Expect writes it.
  Json& manifest() {
    if (manifest_.is_null()) manifest_ = ReadJson(path_ + "/manifest.json");
    return manifest_;
  }
  void Expect(absl::StatusCode code, const std::vector<std::string>& parts) {
    if (!manifest_.is_null()) WriteJson(path_ + "/manifest.json", manifest_);
    Floats w(24, -9), bias(3, -9);
    const absl::Status s = Load(path_, {{"b", View(&bias, {3}), {}, {}}, {"w", View(&w, {4, 6}), {}, {}}}).status();
    EXPECT_EQ(s.code(), code) << s;
    for (const std::string& part : parts) EXPECT_NE(s.message().find(part), absl::string_view::npos) << "'" << part << "' is not in " << s;
    EXPECT_EQ(w, Floats(24, -9));
    EXPECT_EQ(bias, Floats(3, -9));
  }
  // Flips a bit of the first place where `value` stands in the shard.
  void Flip(float value) {
    std::string text = *ReadFile(shard());
    const size_t at = text.find(std::string(reinterpret_cast<const char*>(&value), 4));
    ASSERT_NE(at, std::string::npos);
    text[at] ^= 1;
    std::ofstream(shard(), std::ios::binary) << text;
  }
  std::string shard() const { return path_ + "/shard-00000.safetensors"; }
  std::string path_;
  Json manifest_;
};

TEST_F(DamageTest, AFlippedBitInABlock) {
  Flip(17);
  Expect(absl::StatusCode::kDataLoss, {"shard-00000.safetensors", "w[2:4,2:6]", "altered"});
  // Who wants nothing of that block is not concerned.
  Floats upper(12);
  EXPECT_TRUE(Load(path_, {{"w", View(&upper, {2, 6}), {4, 6}, {0, 0}}}).ok());
  EXPECT_EQ(upper, Count(12));
}

TEST_F(DamageTest, AFileThatIsTooShort) {
  fs::resize_file(shard(), fs::file_size(shard()) - 4);
  Expect(absl::StatusCode::kDataLoss, {"shard-00000.safetensors"});
}

TEST_F(DamageTest, AFileThatIsMissing) {
  fs::remove(shard());
  Expect(absl::StatusCode::kNotFound, {"shard-00000.safetensors", "tensor"});
}

TEST_F(DamageTest, ABlockThatTheManifestDoesNotList) {
  manifest()["tensors"][0]["blocks"].erase(1);
  Expect(absl::StatusCode::kDataLoss, {"manifest.json", "tensor w", "[0:2,2:6]", "missing"});
}

TEST_F(DamageTest, ABlockThatOverlaps) {
  manifest()["tensors"][0]["blocks"][0]["shape"] = {4, 3};
  Expect(absl::StatusCode::kDataLoss, {"manifest.json", "tensor w", "[0:2,2:3]", "2 times", "shard-00000.safetensors"});
}

TEST_F(DamageTest, ABlockThatTheFileDoesNotHold) {
  Json& blocks = manifest()["tensors"][0]["blocks"];
  blocks[1]["shape"] = {1, 4};
  const Json copy = blocks[1];
  blocks.push_back(copy);
  blocks[3]["begin"] = {1, 2};
  Expect(absl::StatusCode::kDataLoss, {"shard-00000.safetensors", "w[0:1,2:6]", "is not in the file"});
}

TEST_F(DamageTest, AnotherDType) {
  manifest()["tensors"][1]["dtype"] = "F64";
  Expect(absl::StatusCode::kFailedPrecondition, {"tensor b", "F64[3]", "F32[3]"});
}

TEST_F(DamageTest, ManifestAndFileOfDifferentMinds) {
  const Floats v = Count(6);
  ASSERT_TRUE(WriteSafetensors(path_ + "/other.safetensors", {{"b", "I32", {3}, v.data()}}).ok());
  manifest()["tensors"][1]["file"] = "other.safetensors";
  Expect(absl::StatusCode::kDataLoss, {"other.safetensors", "tensor b", "I32[3]", "F32[3]"});
}

TEST_F(DamageTest, MalformedManifests) {
  const Json whole = manifest();
  const std::pair<const char*, Json> edits[] = {
      {"/tensors/0/blocks/0/begin", {0, 5}},      {"/tensors/0/blocks/0/begin", {-1, 0}},        {"/tensors/0/blocks/0/begin", {0}},           {"/tensors/0/blocks/0/begin", "x"},
      {"/tensors/0/blocks/0/shape", {INT64_MAX, 2}}, {"/tensors/0/blocks/0/begin", {UINT64_MAX, 0}}, {"/tensors/0/blocks/0/shape", {4.5, 2}},   {"/tensors/0/blocks", 5},
      {"/tensors/0/blocks/0", 5},                 {"/tensors/0/blocks/0/file", "../x"},          {"/tensors/0/blocks/0/file", nullptr},        {"/tensors/0/blocks/0/checksum", 7},
      {"/tensors/0/shape", {-4, 6}},              {"/tensors/1/checksum", nullptr},              {"/tensors/1/name", "w"},                     {"/tensors/1/name", 3},
      {"/tensors/1", Json::array()},              {"/tensors/1/dtype", 3},                       {"/tensors", "none"},                         {"/version", "2"},
      {"/format", "x"},                           {"/step", 1.5},
  };
  for (const auto& [at, value] : edits) {
    manifest_ = whole;
    manifest_[Json::json_pointer(at)] = value;
    SCOPED_TRACE(std::string(at) + " " + value.dump());
    Expect(absl::StatusCode::kDataLoss, {"manifest.json"});
  }
}

// Checksums and copies go through them in parts.
TEST(CheckpointFilesTest, BlocksOfMegabytes) {
  const std::string path = Folder("large");
  const Floats all = Count(900 * 1000);
  Floats columns(900 * 10), whole(all.size());
  Floats upper(all.begin(), all.begin() + 700 * 1000), lower(all.begin() + 700 * 1000, all.end());
  const absl::Status saved = Save(path, {{"w", View(&upper, {700, 1000}), {900, 1000}, {0, 0}}, {"w", View(&lower, {200, 1000}), {900, 1000}, {700, 0}}});
  ASSERT_TRUE(saved.ok()) << saved;
  const std::vector<CheckpointTensor> wanted = {{"w", View(&columns, {900, 10}), {900, 1000}, {0, 500}}, {"w", View(&whole, {900, 1000}), {}, {}}};
  const absl::Status s = Load(path, wanted).status();
  ASSERT_TRUE(s.ok()) << s;
  EXPECT_TRUE(whole == all);
  for (int64_t i = 0; i < 900; ++i)
    for (int64_t k = 0; k < 10; ++k) ASSERT_EQ(columns[i * 10 + k], all[i * 1000 + 500 + k]);
  const std::string shard = path + "/shard-00000.safetensors";
  std::fstream f(shard, std::ios::in | std::ios::out | std::ios::binary);
  f.seekp(static_cast<std::streamoff>(fs::file_size(shard)) - 200 * 4000 - 1500000);   // in the middle of the first block
  f.put('?');
  f.close();
  const absl::Status damaged = Load(path, wanted).status();
  EXPECT_EQ(damaged.code(), absl::StatusCode::kDataLoss) << damaged;
  EXPECT_NE(damaged.message().find("w[0:700,0:1000]"), absl::string_view::npos) << damaged;
}

TEST(CheckpointFilesTest, WhatTheModelHasOtherwiseIsNamed) {
  const std::string path = SaveSample("otherwise");
  Floats v(24);
  const auto message = [&](const CheckpointTensor& t) {
    const absl::Status s = Load(path, {t}).status();
    EXPECT_EQ(s.code(), absl::StatusCode::kFailedPrecondition) << s;
    return std::string(s.message());
  };
  EXPECT_NE(message({"w", View(&v, {2, 6}), {4, 7}, {0, 0}}).find("tensor w is F32[4,6] there and F32[4,7]"), std::string::npos);
  EXPECT_NE(message({"w", View(&v, {24}), {}, {}}).find("F32[24]"), std::string::npos);
  EXPECT_NE(message({"v", View(&v, {24}), {}, {}}).find("no tensor v"), std::string::npos);
  CheckpointTensor t = {"v", View(&v, {24}), {}, {}};
  t.required = false;
  EXPECT_TRUE(Load(path, {t}).ok());
}

TEST(CheckpointFilesTest, BlocksThatDoNotFitAreRefused) {
  const std::string path = Folder("refused");
  Floats v(24);
  CheckpointTensor unowned = {"w", View(&v, {4, 6}), {}, {}};
  unowned.owned = false;
  const std::pair<std::vector<CheckpointTensor>, std::string> cases[] = {
      {{{"w", View(&v, {4, 2}), {4, 6}, {0, 0}}, {"w", View(&v, {4, 2}), {4, 6}, {0, 4}}}, "elements [0:4,2:4] are missing"},
      {{{"w", View(&v, {4, 4}), {4, 6}, {0, 0}}, {"w", View(&v, {2, 4}), {4, 6}, {2, 2}}}, "elements [0:2,4:6] are missing"},
      {{{"w", View(&v, {4, 4}), {4, 6}, {0, 0}}, {"w", View(&v, {4, 3}), {4, 6}, {0, 3}}}, "elements [0:4,3:4] are there 2 times"},
      {{{"w", View(&v, {4, 2}), {4, 6}, {0, 0}}, {"w", View(&v, {4, 4}), {4, 7}, {0, 2}}}, "F32[4,6] on one rank and F32[4,7]"},
      {{{"w", View(&v, {4, 2}), {4, 6}, {0, 5}}}, "is not inside"},
      {{{"w", View(&v, {4, 2}), {4, 6}, {}}}, "is not inside"},
      {{{"w", View(&v, {4, 2}), {8}, {0}}}, "is not inside"},
      {{{"w", View(&v, {4, 6}).Columns(0, 2), {}, {}}}, "no contiguous memory"},
      {{{"w", TensorView(), {}, {}}}, "no contiguous memory"},
      {{{"w", View(&v, {0, 6}), {4, 6}, {0, 0}}}, "no rank owns any of it"},
      {{unowned}, "no rank owns any of it"},
  };
  for (const auto& [tensors, part] : cases) {
    const absl::Status s = Save(path, tensors);
    EXPECT_EQ(s.code(), absl::StatusCode::kInternal) << s;
    EXPECT_NE(s.message().find(part), absl::string_view::npos) << "'" << part << "' is not in " << s;
    EXPECT_NE(s.message().find("tensor w"), absl::string_view::npos) << s;
    EXPECT_FALSE(fs::exists(path) || fs::exists(path + ".tmp"));
  }
}

}  // namespace
}  // namespace moe
