// Saving and loading: bit-equal continuation, any layout, damage found and named, the model untouched by a failed load.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/engine/rank_world.h"

namespace moe {
namespace {

namespace fs = std::filesystem;

std::string Folder(const std::string& name) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR") ? std::getenv("TEST_TMPDIR") : "/tmp") + "/" + name;
  fs::remove_all(path);
  return path;
}

const DeviceMaker kDevice = [] { return MakeReferenceDevice(); };

absl::Status Steps(RankWorld* w, const config::Config& c, int first, int n, std::vector<double>* losses) {
  for (int i = first; i < first + n; ++i) {
    const Text text = RandomText(c, 4, 50 + i);
    const int64_t per = 4 / w->world;
    StepStats s;
    MOE_RETURN_IF_ERROR(w->model->ForwardBackward(text.Part(w->rank * per, per), &s));
    MOE_RETURN_IF_ERROR(w->model->OptimizerStep(&s));
    if (w->rank == 0 && losses) losses->push_back(s.loss);
  }
  return absl::OkStatus();
}

std::string SaveSample(const std::string& name, int64_t world, int64_t ep, std::vector<double>* later = nullptr) {
  const config::Config c = TinyConfig();
  const std::string path = Folder(name);
  const absl::Status s = RunWorld(c, world, ep, kDevice, [&](RankWorld* w) -> absl::Status {
    MOE_RETURN_IF_ERROR(Steps(w, c, 0, 3, nullptr));
    MOE_RETURN_IF_ERROR(w->model->Save(path, R"({"mine":7})"));
    return Steps(w, c, 3, 3, later);
  });
  EXPECT_TRUE(s.ok()) << s;
  return path;
}

absl::Status LoadLone(const std::string& path, const config::Config& c = TinyConfig(), bool weights_only = false) {
  return RunWorld(c, 1, 1, kDevice, [&](RankWorld* w) { return w->model->Load(path, weights_only, nullptr); });
}

// C5.
TEST(CheckpointTest, GoesOnWithTheSameBits) {
  std::vector<double> want, got;
  const std::string path = SaveSample("same", 2, 2, &want);
  const config::Config c = TinyConfig();
  const absl::Status s = RunWorld(c, 2, 2, kDevice, [&](RankWorld* w) -> absl::Status {
    MOE_RETURN_IF_ERROR(Steps(w, c, 7, 1, nullptr));   // anything but a fresh model
    std::string user;
    MOE_RETURN_IF_ERROR(w->model->Load(path, false, &user));
    if (user != R"({"mine":7})") return Internal(user);
    if (w->model->step() != 3) return Internal("step ", w->model->step());
    return Steps(w, c, 3, 3, w->rank == 0 ? &got : nullptr);
  });
  ASSERT_TRUE(s.ok()) << s;
  EXPECT_EQ(got, want);
}

// C1: other ranks, other expert parallelism, equal to rounding.
TEST(CheckpointTest, LoadsAtAnyLayout) {
  std::vector<double> want;
  const std::string path = SaveSample("layouts", 4, 4, &want);
  const config::Config c = TinyConfig();
  for (const auto& [world, ep] : {std::pair<int, int>{1, 1}, {2, 1}, {2, 2}, {4, 2}}) {
    std::vector<double> got;
    const absl::Status s = RunWorld(c, world, ep, kDevice, [&](RankWorld* w) -> absl::Status {
      MOE_RETURN_IF_ERROR(w->model->Load(path, false, nullptr));
      return Steps(w, c, 3, 3, &got);
    });
    ASSERT_TRUE(s.ok()) << s;
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5 * want[i]) << world << " ranks, ep " << ep;
  }
}

// C7, C2: the manifest names every expert once, each with a checksum of its own.
TEST(CheckpointTest, ManifestListsEveryExpertWithItsChecksum) {
  const std::string path = SaveSample("manifest", 4, 4);
  std::ifstream f(path + "/manifest.json");
  const auto m = nlohmann::json::parse(f);
  std::set<std::string> sums;
  int experts = 0;
  for (const auto& t : m["tensors"]) {
    const std::string name = t["name"];
    if (name.find("layers.1.moe.experts.") != 0 || name.find(".w1.weight") == std::string::npos) continue;
    ++experts;
    sums.insert(t["checksum"].get<std::string>());
  }
  EXPECT_EQ(experts, 4);
  EXPECT_EQ(sums.size(), 4u);
  EXPECT_EQ(m["step"], 3);
}

// C6.
TEST(CheckpointTest, WeightsAloneNeedNoOptimizer) {
  config::Config c = TinyConfig();
  c.mutable_optimizer()->set_kind("sgd");
  const std::string path = SaveSample("weights", 1, 1);
  EXPECT_TRUE(LoadLone(path, c, true).ok());
  c.mutable_optimizer()->set_momentum(0.9);
  const absl::Status s = LoadLone(path, c, false);
  EXPECT_FALSE(s.ok());
  EXPECT_NE(s.message().find("optimizer.momentum."), absl::string_view::npos) << s;
}

// C4, on two ranks: the damage is in one rank's shard, the error on both, and the model is as it was.
TEST(CheckpointTest, DamageIsNamedOnAllRanksAndChangesNothing) {
  const std::string path = SaveSample("damage", 2, 2);
  const config::Config c = TinyConfig();
  const std::string shard = path + "/shard-00001.safetensors";
  const auto size = fs::file_size(shard);
  const auto load = [&](absl::StatusCode code, const std::string& part) {
    const absl::Status s = RunWorld(c, 2, 2, kDevice, [&](RankWorld* w) -> absl::Status {
      std::vector<float> before(w->model->params()->flat_value(ParamKind::kExpert).as<float>(), w->model->params()->flat_value(ParamKind::kExpert).as<float>() + w->model->params()->flat_value(ParamKind::kExpert).size());
      const absl::Status bad = w->model->Load(path, false, nullptr);
      if (bad.code() != code) return Internal("expected ", absl::StatusCodeToString(code), ", got ", bad.ToString());
      if (bad.message().find(part) == absl::string_view::npos) return Internal("'", part, "' is not in ", bad.ToString());
      if (std::memcmp(before.data(), w->model->params()->flat_value(ParamKind::kExpert).data(), before.size() * sizeof(float)) != 0) return Internal("the model was changed");
      return absl::OkStatus();
    });
    EXPECT_TRUE(s.ok()) << s;
  };
  {
    std::fstream f(shard, std::ios::in | std::ios::out | std::ios::binary);
    f.seekg(static_cast<std::streamoff>(size) - 3);
    const char c = static_cast<char>(f.get() ^ 1);
    f.seekp(static_cast<std::streamoff>(size) - 3);
    f.put(c);
  }
  load(absl::StatusCode::kDataLoss, "altered");
  fs::resize_file(shard, size - 10);
  load(absl::StatusCode::kDataLoss, "shard-00001.safetensors");
  fs::remove(shard);
  load(absl::StatusCode::kNotFound, "shard-00001.safetensors");
  fs::resize_file(path + "/manifest.json", 100);
  load(absl::StatusCode::kDataLoss, "manifest.json");
  fs::remove_all(path);
  load(absl::StatusCode::kNotFound, "manifest.json");
}

TEST(CheckpointTest, OtherShapesAreRefusedByName) {
  const std::string path = SaveSample("shapes", 1, 1);
  config::Config c = TinyConfig();
  c.mutable_model()->set_d_hidden(11);
  absl::Status s = LoadLone(path, c);
  EXPECT_NE(s.message().find("experts.0.w1.weight"), absl::string_view::npos) << s;
  c = TinyConfig();
  c.mutable_model()->set_num_global_experts(5);
  s = LoadLone(path, c);
  EXPECT_FALSE(s.ok());
}

TEST(CheckpointTest, NothingIsLeftOfASaveThatFails) {
  const std::string path = SaveSample("twice", 1, 1);
  const config::Config c = TinyConfig();
  const auto save = [&](const std::string& to) { return RunWorld(c, 2, 2, kDevice, [&](RankWorld* w) { return w->model->Save(to, ""); }); };
  EXPECT_EQ(save(path).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(LoadLone(path).ok());   // untouched
  const std::string nowhere = Folder("no_such") + "/deeper/x";
  EXPECT_EQ(save(nowhere).code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(fs::exists(nowhere + ".tmp"));
  // What a killed save has left behind does not disturb the next one.
  const std::string again = Folder("again");
  fs::create_directories(again + ".tmp");
  std::ofstream(again + ".tmp/shard-00000.safetensors") << "half";
  EXPECT_TRUE(save(again).ok());
  EXPECT_FALSE(fs::exists(again + ".tmp"));
}

}  // namespace
}  // namespace moe
