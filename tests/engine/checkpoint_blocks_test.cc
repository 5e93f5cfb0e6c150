// Checkpoints of tensors that many ranks hold in blocks: saved with one split, loaded with another, element by element.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <thread>

#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/safetensors.h"
#include "core/comm/agree.h"
#include "core/device/reference/reference_device.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "transport/inproc/inproc.h"

namespace moe {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Shape = std::vector<int64_t>;
using Random = std::mt19937;

std::string Folder(const std::string& name) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR") ? std::getenv("TEST_TMPDIR") : "/tmp") + "/" + name;
  fs::remove_all(path);
  return path;
}

struct Box { Shape begin, shape; };

struct Tensor { std::string name; DType dtype; Shape shape; };

// Memory of a block of a tensor on one rank.
struct Held {
  const Tensor* tensor;
  Box box;
  bool owned = true;
  bool whole_form = false;   // say nothing of blocks
  std::vector<char> bytes{};

  int64_t size() const {
    int64_t n = 1;
    for (int64_t d : box.shape) n *= d;
    return n;
  }
  // What must stand in it: bytes that follow from the tensor's name and the element's place in the whole tensor.
  std::vector<char> Right() const {
    const int64_t width = SizeOf(tensor->dtype);
    std::vector<char> out(size() * width);
    for (int64_t i = 0; i < size(); ++i) {
      int64_t rest = i, at = 0, stride = 1;
      for (size_t d = box.shape.size(); d-- > 0; stride *= tensor->shape[d]) {
        at += (box.begin[d] + rest % box.shape[d]) * stride;
        rest /= box.shape[d];
      }
      for (int64_t b = 0; b < width; ++b) {
        const uint64_t h = (std::hash<std::string>()(tensor->name) + static_cast<uint64_t>(at * width + b)) * 0x9e3779b97f4a7c15ull;
        out[i * width + b] = static_cast<char>(h >> 40);
      }
    }
    return out;
  }
  CheckpointTensor ToCheckpoint() {
    bytes.resize(std::max<size_t>(bytes.size(), 1));   // a view of nothing still has an address
    CheckpointTensor t;
    t.name = tensor->name;
    t.view = TensorView(bytes.data(), tensor->dtype, box.shape);
    if (!whole_form) {
      t.global_shape = tensor->shape;
      t.begin = box.begin;
    }
    t.owned = owned;
    return t;
  }
};

using RankHolds = std::vector<std::vector<Held>>;   // of every rank

// Every rank as a thread; all results.
std::vector<absl::Status> OnRanks(int64_t world, const std::function<absl::Status(int64_t, Communicator*)>& f) {
  auto shared = std::make_shared<InprocWorld>(world);
  std::vector<absl::Status> results(world);
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < world; ++r) {
    threads.emplace_back([&, r] {
      results[r] = [&]() -> absl::Status {
        MOE_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport, MakeInprocTransport(shared, r));
        std::vector<int64_t> members(world);
        for (int64_t i = 0; i < world; ++i) members[i] = i;
        MOE_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> group, transport->CreateGroup(1, members));
        const absl::Status done = f(r, group.get());
        const absl::Status left = transport->Shutdown();
        return done.ok() ? left : done;
      }();
    });
  }
  for (std::thread& t : threads) t.join();
  return results;
}

std::vector<absl::Status> Save(const std::string& path, RankHolds* holds, const std::string& user = "") {
  for (auto& rank : *holds)
    for (Held& h : rank) h.bytes = h.Right();
  return OnRanks(static_cast<int64_t>(holds->size()), [&](int64_t r, Communicator* group) {
    std::vector<CheckpointTensor> tensors;
    for (Held& h : (*holds)[r]) tensors.push_back(h.ToCheckpoint());
    CheckpointMeta meta;
    meta.step = 5;
    meta.user_json = user;
    return SaveCheckpoint(MakeReferenceDevice().get(), group, path, meta, tensors);
  });
}

constexpr char kUntouched = 0x5a;

std::vector<absl::Status> Load(const std::string& path, RankHolds* holds) {
  for (auto& rank : *holds)
    for (Held& h : rank) h.bytes.assign(h.size() * SizeOf(h.tensor->dtype), kUntouched);
  return OnRanks(static_cast<int64_t>(holds->size()), [&](int64_t r, Communicator* group) -> absl::Status {
    std::vector<CheckpointTensor> tensors;
    for (Held& h : (*holds)[r]) tensors.push_back(h.ToCheckpoint());
    MOE_ASSIGN_OR_RETURN(const CheckpointMeta meta, LoadCheckpoint(MakeReferenceDevice().get(), group, path, tensors));
    return meta.step == 5 ? absl::OkStatus() : Internal("step ", meta.step);
  });
}

void ExpectOk(const std::vector<absl::Status>& results) {
  for (const absl::Status& s : results) ASSERT_TRUE(s.ok()) << s;
}

// On all ranks the same error.
void ExpectError(const std::vector<absl::Status>& results, absl::StatusCode code, const std::vector<std::string>& parts) {
  for (size_t r = 0; r < results.size(); ++r) {
    EXPECT_EQ(results[r].code(), code) << "rank " << r << ": " << results[r];
    for (const std::string& part : parts) EXPECT_NE(results[r].message().find(part), absl::string_view::npos) << "rank " << r << ": '" << part << "' is not in " << results[r];
  }
}

void ExpectUntouched(const RankHolds& holds) {
  for (const auto& rank : holds)
    for (const Held& h : rank)
      for (int64_t i = 0; i < h.size() * SizeOf(h.tensor->dtype); ++i) ASSERT_EQ(h.bytes[i], kUntouched) << h.tensor->name;
}

// ---- ways to cut a tensor
enum class Split { kWhole, kRows, kColumns, kGrid, kRandom };

void CutAlong(std::vector<Box>* boxes, size_t d, int64_t parts) {
  std::vector<Box> out;
  for (const Box& b : *boxes) {
    for (int64_t i = 0; i < parts; ++i) {
      Box part = b;
      const int64_t first = i * b.shape[d] / parts;   // uneven, empty when there are more parts than elements
      part.begin[d] += first;
      part.shape[d] = (i + 1) * b.shape[d] / parts - first;
      out.push_back(part);
    }
  }
  *boxes = out;
}

std::vector<Box> Cut(const Shape& shape, Split split, int64_t parts, Random* gen) {
  std::vector<Box> boxes = {{Shape(shape.size(), 0), shape}};
  if (split == Split::kRows || split == Split::kGrid) CutAlong(&boxes, 0, parts);
  if (split == Split::kColumns) CutAlong(&boxes, shape.size() - 1, parts);
  if (split == Split::kGrid) CutAlong(&boxes, shape.size() - 1, 1 + static_cast<int64_t>((*gen)() % 3));
  // Again and again one block is cut somewhere: blocks that form no grid.
  for (int i = 0; split == Split::kRandom && i < 2 * parts; ++i) {
    Box& a = boxes[(*gen)() % boxes.size()];
    const size_t d = (*gen)() % shape.size();
    const int64_t at = static_cast<int64_t>((*gen)() % (a.shape[d] + 1));
    Box b = a;
    b.begin[d] += at;
    b.shape[d] -= at;
    a.shape[d] = at;
    boxes.push_back(b);
  }
  return boxes;
}

// Every rank gets some blocks of a cut of every tensor; some ranks also copies of what others own, or nothing at all.
RankHolds Deal(const std::vector<Tensor>& tensors, Split split, int64_t world, bool for_save, Random* gen) {
  RankHolds out(world);
  for (const Tensor& t : tensors) {
    const int64_t offset = static_cast<int64_t>((*gen)() % world);
    const std::vector<Box> boxes = Cut(t.shape, split, world, gen);
    for (size_t i = 0; i < boxes.size(); ++i) {
      const int64_t owner = split == Split::kRandom ? static_cast<int64_t>((*gen)() % world) : (offset + static_cast<int64_t>(i)) % world;
      const bool whole = boxes[i].shape == t.shape;
      Held h{&t, boxes[i]};
      h.whole_form = whole && (*gen)() % 2 == 0;
      out[owner].push_back(h);
      if (world > 1 && (*gen)() % 3 == 0) {
        h.owned = !for_save;
        out[(owner + 1) % world].push_back(h);
      }
    }
  }
  return out;
}

struct Splits { const char* name; Split save, load; };

class SplitTest : public testing::TestWithParam<Splits> {};

TEST_P(SplitTest, LoadsWhatWasSaved) {
  const std::string path = Folder(std::string("split_") + GetParam().name);
  for (uint32_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random gen(seed);
    std::vector<Tensor> tensors;
    for (int i = 0; i < 5; ++i) {
      Shape shape(1 + i % 3);
      for (int64_t& n : shape) n = 1 + static_cast<int64_t>(gen() % 9);
      const DType dtypes[] = {DType::kF32, DType::kF64, DType::kU8, DType::kI64, DType::kI32};
      tensors.push_back({absl::StrCat("layers.", i, ".weight"), dtypes[gen() % 5], shape});
    }
    RankHolds saved = Deal(tensors, GetParam().save, 1 + static_cast<int64_t>(gen() % 5), true, &gen);
    RankHolds loaded = Deal(tensors, GetParam().load, 1 + static_cast<int64_t>(gen() % 5), false, &gen);
    // And any block at all.
    for (auto& rank : loaded) {
      for (const Tensor& t : tensors) {
        Box b{Shape(t.shape.size()), Shape(t.shape.size())};
        for (size_t d = 0; d < t.shape.size(); ++d) {
          b.begin[d] = static_cast<int64_t>(gen() % (t.shape[d] + 1));
          b.shape[d] = static_cast<int64_t>(gen() % (t.shape[d] - b.begin[d] + 1));
        }
        rank.push_back({&t, b});
      }
    }
    fs::remove_all(path);
    ASSERT_NO_FATAL_FAILURE(ExpectOk(Save(path, &saved)));
    ASSERT_NO_FATAL_FAILURE(ExpectOk(Load(path, &loaded)));
    for (const auto& rank : loaded) {
      for (const Held& h : rank) {
        const std::vector<char> right = h.Right();
        ASSERT_TRUE(std::equal(right.begin(), right.end(), h.bytes.begin())) << h.tensor->name;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Pairs, SplitTest, testing::ValuesIn(std::vector<Splits>{
    {"WholeToRows", Split::kWhole, Split::kRows},      {"RowsToWhole", Split::kRows, Split::kWhole},       {"RowsToRows", Split::kRows, Split::kRows},
    {"RowsToColumns", Split::kRows, Split::kColumns},  {"ColumnsToRows", Split::kColumns, Split::kRows},   {"ColumnsToColumns", Split::kColumns, Split::kColumns},
    {"GridToGrid", Split::kGrid, Split::kGrid},        {"GridToRandom", Split::kGrid, Split::kRandom},     {"RandomToGrid", Split::kRandom, Split::kGrid},
    {"RandomToRandom", Split::kRandom, Split::kRandom}, {"WholeToRandom", Split::kWhole, Split::kRandom}, {"RandomToWhole", Split::kRandom, Split::kWhole},
}), [](const auto& info) { return info.param.name; });

// ---- fixed cases: "w" of 6 x 8 in column blocks of three ranks, "b" whole on rank 1, rank 3 owns nothing
const Tensor kW{"w", DType::kF32, {6, 8}}, kB{"b", DType::kF64, {5}}, kNone{"none", DType::kF32, {0, 4}};

RankHolds Columns() {
  return {{{&kW, {{0, 0}, {6, 3}}}}, {{&kW, {{0, 3}, {6, 3}}}, {&kB, {{0}, {5}}, true, true}}, {{&kW, {{0, 6}, {6, 2}}}}, {{&kB, {{0}, {5}}, false, true}, {&kW, {{0, 8}, {6, 0}}}}};
}

std::string SaveColumns(const std::string& name) {
  const std::string path = Folder(name);
  RankHolds holds = Columns();
  for (const absl::Status& s : Save(path, &holds)) EXPECT_TRUE(s.ok()) << s;
  return path;
}

TEST(CheckpointBlocksTest, ShardsHoldWhatTheirRanksOwn) {
  const std::string path = SaveColumns("shards");
  EXPECT_FALSE(fs::exists(path + "/shard-00003.safetensors"));
  auto shard = SafetensorsReader::Open(path + "/shard-00001.safetensors");
  ASSERT_TRUE(shard.ok()) << shard.status();
  EXPECT_EQ((*shard)->tensors().size(), 2u);
  EXPECT_EQ((*shard)->tensors().at("b").shape, (Shape{5}));
  EXPECT_EQ((*shard)->tensors().at("w[0:6,3:6]").shape, (Shape{6, 3}));
  std::ifstream f(path + "/manifest.json");
  const Json m = Json::parse(f);
  EXPECT_EQ(m["world_size"], 4);
  EXPECT_EQ(m["tensors"][0]["blocks"].size(), 3u);   // the block without elements is not one
}

TEST(CheckpointBlocksTest, ADamagedBlockIsNamedOnAllRanksAndNothingChanges) {
  const std::string path = SaveColumns("damaged");
  const std::string file = path + "/shard-00002.safetensors";
  {
    std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
    const auto at = static_cast<std::streamoff>(fs::file_size(file)) - 1;
    f.seekg(at);
    const char c = static_cast<char>(f.get() ^ 0x10);
    f.seekp(at);
    f.put(c);
  }
  // Only rank 1 wants elements of that block.
  RankHolds wanted = {{{&kW, {{0, 0}, {6, 2}}}, {&kB, {{0}, {5}}}}, {{&kB, {{1}, {2}}}, {&kW, {{5, 5}, {1, 2}}}}, {{&kW, {{0, 0}, {1, 6}}}}};
  ExpectError(Load(path, &wanted), absl::StatusCode::kDataLoss, {file, "w[0:6,6:8]", "altered"});
  ExpectUntouched(wanted);
  wanted[1].pop_back();
  ASSERT_NO_FATAL_FAILURE(ExpectOk(Load(path, &wanted)));   // nobody wants it
  wanted[2].push_back({&kW, {{0, 0}, {6, 8}}});
  fs::remove(file);
  ExpectError(Load(path, &wanted), absl::StatusCode::kNotFound, {file, "w[0:6,6:8]"});
  ExpectUntouched(wanted);
}

TEST(CheckpointBlocksTest, MissingAndDoubleElementsAreNamedOnAllRanksAndNothingIsLeft) {
  const std::string path = Folder("tiling");
  const auto expect = [&](RankHolds holds, const std::vector<std::string>& parts) {
    ExpectError(Save(path, &holds), absl::StatusCode::kInternal, parts);
    EXPECT_FALSE(fs::exists(path) || fs::exists(path + ".tmp"));
  };
  RankHolds holds = Columns();
  holds[1].erase(holds[1].begin());
  expect(holds, {"tensor w", "[0:6,3:6]", "missing"});
  holds = Columns();
  holds[1][1].owned = false;
  expect(holds, {"tensor b", "F64[5]", "no rank owns"});
  holds = Columns();
  holds[2][0].box = {{0, 5}, {6, 3}};
  expect(holds, {"tensor w", "[0:6,5:6]", "2 times", "shard-00001.safetensors, shard-00002.safetensors"});
  holds = Columns();
  holds[3][0].owned = true;
  expect(holds, {"tensor b", "[0:5]", "2 times", "shard-00001.safetensors, shard-00003.safetensors"});
  const Tensor other{"w", DType::kF32, {6, 9}};
  holds = Columns();
  holds[2][0].tensor = &other;
  expect(holds, {"tensor w", "F32[6,8]", "F32[6,9]"});
  holds = Columns();
  holds[2][0].box.begin[1] = 7;
  expect(holds, {"tensor w", "not inside", "[0,7]"});
  // And then it works: nothing of the failures is in the way.
  holds = Columns();
  ExpectError(Save(path, &holds, "not json"), absl::StatusCode::kInvalidArgument, {"user_json"});
  EXPECT_FALSE(fs::exists(path) || fs::exists(path + ".tmp"));
  ASSERT_NO_FATAL_FAILURE(ExpectOk(Save(path, &holds)));
}

TEST(CheckpointBlocksTest, TensorsWithoutElements) {
  const std::string path = Folder("none");
  // In blocks that are as empty as the whole, on several ranks, or cut where there is something to cut.
  RankHolds holds = {{}, {{&kNone, {{0, 0}, {0, 4}}}}, {{&kNone, {{0, 0}, {0, 4}}}}};
  ASSERT_NO_FATAL_FAILURE(ExpectOk(Save(path, &holds)));
  RankHolds wanted = {{{&kNone, {{0, 1}, {0, 2}}}}, {{&kNone, {{0, 0}, {0, 4}}, true, true}}};
  ASSERT_NO_FATAL_FAILURE(ExpectOk(Load(path, &wanted)));
  fs::remove_all(path);
  holds = {{}, {{&kNone, {{0, 0}, {0, 2}}}}, {{&kNone, {{0, 2}, {0, 2}}}}};
  ASSERT_NO_FATAL_FAILURE(ExpectOk(Save(path, &holds)));
  ASSERT_NO_FATAL_FAILURE(ExpectOk(Load(path, &wanted)));
}

// More shards than are open at a time.
TEST(CheckpointBlocksTest, ManyShards) {
  const std::string path = Folder("many");
  const Tensor tall{"tall", DType::kI32, {300, 2}}, tall2{"tall2", DType::kF32, {300}};
  fs::create_directories(path);
  Json tensors = Json::array();
  for (const Tensor* t : {&tall, &tall2}) tensors.push_back({{"name", t->name}, {"dtype", t == &tall ? "I32" : "F32"}, {"shape", t->shape}, {"blocks", Json::array()}});
  for (int64_t i = 0; i < 100; ++i) {
    const std::string file = absl::StrCat("shard-", i, ".safetensors");
    const Held a{&tall, {{3 * i, 0}, {3, 2}}}, b{&tall2, {{3 * i}, {3}}};
    const std::vector<char> bytes[2] = {a.Right(), b.Right()};
    const auto sums = WriteSafetensors(path + "/" + file, {{absl::StrCat("tall[", 3 * i, ":", 3 * i + 3, ",0:2]"), "I32", {3, 2}, bytes[0].data()},
                                                           {absl::StrCat("tall2[", 3 * i, ":", 3 * i + 3, "]"), "F32", {3}, bytes[1].data()}});
    ASSERT_TRUE(sums.ok()) << sums.status();
    const auto hex = [](uint64_t v) { return absl::StrCat(absl::Hex(v, absl::kZeroPad16)); };
    tensors[0]["blocks"].push_back({{"file", file}, {"begin", a.box.begin}, {"shape", a.box.shape}, {"checksum", hex((*sums)[0])}});
    tensors[1]["blocks"].push_back({{"file", file}, {"begin", b.box.begin}, {"shape", b.box.shape}, {"checksum", hex((*sums)[1])}});
  }
  std::ofstream(path + "/manifest.json") << Json({{"format", "libmoe-checkpoint"}, {"version", 2}, {"step", 5}, {"tensors", tensors}}).dump();
  RankHolds wanted = {{{&tall, {{0, 0}, {300, 2}}}, {&tall2, {{7}, {290}}}, {&tall, {{0, 1}, {300, 1}}}}};
  ASSERT_NO_FATAL_FAILURE(ExpectOk(Load(path, &wanted)));
  for (const Held& h : wanted[0]) EXPECT_TRUE(h.bytes == h.Right()) << h.tensor->name;
}

}  // namespace
}  // namespace moe
