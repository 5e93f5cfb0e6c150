#include "core/checkpoint/block.h"

#include <cstring>
#include <numeric>
#include <random>

#include "gtest/gtest.h"

namespace moe {
namespace {

using Shape = std::vector<int64_t>;

int64_t Size(const Shape& shape) { return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<int64_t>()); }

// Calls f with every index of a block.
void ForEach(const Block& b, const std::function<void(const Shape&)>& f) {
  if (b.empty()) return;
  for (Shape i = b.begin;;) {
    f(i);
    size_t d = i.size();
    while (d-- > 0 && ++i[d] == b.end(d)) i[d] = b.begin[d];
    if (d == static_cast<size_t>(-1)) return;
  }
}

int64_t Offset(const Shape& index, const Block& in) {
  int64_t at = 0;
  for (size_t d = 0; d < index.size(); ++d) at = at * in.shape[d] + index[d] - in.begin[d];
  return at;
}

Block RandomBlock(const Shape& shape, std::mt19937* gen, bool may_be_empty) {
  Block b;
  for (int64_t n : shape) {
    int64_t x = static_cast<int64_t>((*gen)() % (n + 1)), y = static_cast<int64_t>((*gen)() % (n + 1));
    if (x == y && !may_be_empty) x == n ? --x : ++y;
    b.begin.push_back(std::min(x, y));
    b.shape.push_back(std::max(x, y) - b.begin.back());
  }
  return b;
}

TEST(BlockTest, Names) {
  EXPECT_EQ((Block{{0, 8}, {4, 8}}.DebugString()), "[0:4,8:16]");
  EXPECT_EQ((Block{{3}, {0}}.DebugString()), "[3:3]");
  EXPECT_TRUE((Block{{3}, {0}}.empty()));
  EXPECT_EQ(WholeBlock({2, 3}), (Block{{0, 0}, {2, 3}}));
}

TEST(BlockTest, LiesInsideDoesNotOverflow) {
  EXPECT_TRUE(LiesInside({{2, 0}, {2, 5}}, {4, 5}));
  EXPECT_TRUE(LiesInside({{4}, {0}}, {4}));
  EXPECT_FALSE(LiesInside({{3, 0}, {2, 5}}, {4, 5}));
  EXPECT_FALSE(LiesInside({{-1}, {2}}, {4}));
  EXPECT_FALSE(LiesInside({{5}, {0}}, {4}));
  EXPECT_FALSE(LiesInside({{0}, {-1}}, {4}));
  EXPECT_FALSE(LiesInside({{INT64_MAX}, {2}}, {4}));
  EXPECT_FALSE(LiesInside({{1}, {INT64_MAX}}, {4}));
  EXPECT_FALSE(LiesInside({{0, 0}, {4, 1}}, {4}));
  EXPECT_FALSE(LiesInside({{}, {4}}, {4}));
}

TEST(BlockTest, Intersections) {
  EXPECT_EQ(*Intersection({{0, 2}, {3, 4}}, {{1, 0}, {9, 3}}), (Block{{1, 2}, {2, 1}}));
  EXPECT_FALSE(Intersection({{0}, {3}}, {{3}, {3}}));
  EXPECT_FALSE(Intersection({{0, 0}, {3, 0}}, {{0, 0}, {3, 2}}));
}

TEST(BlockTest, GapsAndOverlapsAreNamed) {
  EXPECT_FALSE(FindTilingFault({4, 4}, {{{0, 0}, {2, 4}}, {{2, 2}, {2, 2}}, {{2, 0}, {2, 2}}}));
  auto f = FindTilingFault({4, 4}, {{{0, 0}, {2, 4}}, {{2, 2}, {2, 2}}, {{2, 0}, {1, 2}}});
  ASSERT_TRUE(f);
  EXPECT_EQ(f->region.DebugString(), "[3:4,0:2]");
  EXPECT_TRUE(f->blocks.empty());
  f = FindTilingFault({4, 4}, {{{2, 1}, {2, 3}}, {{0, 0}, {2, 4}}, {{2, 0}, {2, 2}}});
  ASSERT_TRUE(f);
  EXPECT_EQ(f->region.DebugString(), "[2:4,1:2]");
  EXPECT_EQ(f->blocks, (std::vector<size_t>{0, 2}));
  f = FindTilingFault({4, 3}, {});
  ASSERT_TRUE(f);
  EXPECT_EQ(f->region.DebugString(), "[0:4,0:3]");
  f = FindTilingFault({4}, {{{1}, {3}}});
  ASSERT_TRUE(f);
  EXPECT_EQ(f->region.DebugString(), "[0:1]");
  EXPECT_FALSE(FindTilingFault({4}, {{{2}, {0}}, {{0}, {4}}, {{2}, {0}}}));   // blocks without elements
  EXPECT_FALSE(FindTilingFault({4, 0}, {}));
  EXPECT_FALSE(FindTilingFault({0}, {{{0}, {0}}, {{0}, {0}}}));
}

// Against counting how often each element is covered.
TEST(BlockTest, TilingAgreesWithCounting) {
  std::mt19937 gen(1);
  int whole = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    Shape shape(1 + gen() % 3);
    for (int64_t& n : shape) n = 1 + static_cast<int64_t>(gen() % 3);
    std::vector<Block> blocks(1 + gen() % 4);
    for (Block& b : blocks) b = RandomBlock(shape, &gen, true);
    const Block all = WholeBlock(shape);
    std::vector<int> count(Size(shape));
    for (const Block& b : blocks) ForEach(b, [&](const Shape& i) { ++count[Offset(i, all)]; });
    const bool want = std::all_of(count.begin(), count.end(), [](int n) { return n == 1; });
    whole += want;
    const auto fault = FindTilingFault(shape, blocks);
    ASSERT_EQ(!fault, want) << trial;
    if (!fault) continue;
    ASSERT_FALSE(fault->region.empty()) << trial;
    ForEach(fault->region, [&](const Shape& i) { ASSERT_EQ(count[Offset(i, all)], static_cast<int>(fault->blocks.size())) << trial; });
  }
  EXPECT_GT(whole, 100);
}

TEST(BlockTest, TilingOfManyBlocksIsQuick) {
  std::vector<Block> rows, grid;
  for (int64_t i = 0; i < 100000; ++i) rows.push_back({{(i * 7919) % 100000, 0}, {1, 4}});
  EXPECT_FALSE(FindTilingFault({100000, 4}, rows));
  for (int64_t i = 0; i < 90000; ++i) grid.push_back({{i / 300, i % 300}, {1, 1}});
  EXPECT_FALSE(FindTilingFault({300, 300}, grid));
}

// A stored block as bytes, and what is read of it.
struct Source {
  std::vector<char> bytes;
  int64_t calls = 0, read = 0;
  ReadRange reader() {
    return [this](int64_t offset, void* out, int64_t n) -> absl::Status {
      if (offset < 0 || n <= 0 || offset + n > static_cast<int64_t>(bytes.size())) return Internal("reads ", n, " bytes from ", offset, " of ", bytes.size());
      ++calls;
      read += n;
      std::memcpy(out, bytes.data() + offset, n);
      return absl::OkStatus();
    };
  }
};

TEST(BlockTest, CopyTakesWhatIsCommonAndNothingElse) {
  std::mt19937 gen(2);
  for (int trial = 0; trial < 5000; ++trial) {
    Shape shape(1 + gen() % 4);
    for (int64_t& n : shape) n = 1 + static_cast<int64_t>(gen() % 5);
    const Block stored = RandomBlock(shape, &gen, false), wanted = RandomBlock(shape, &gen, trial % 8 == 0), all = WholeBlock(shape);
    const int64_t width = trial % 3 == 0 ? 1 : 4;
    Source source;
    const auto put = [&](std::vector<char>* out, int64_t at, int64_t value) { std::memcpy(out->data() + at * width, &value, width); };
    source.bytes.resize(Size(stored.shape) * width);
    ForEach(stored, [&](const Shape& i) { put(&source.bytes, Offset(i, stored), Offset(i, all) & 127); });
    std::vector<char> got(Size(wanted.shape) * width, -1), want = got;
    if (const auto common = Intersection(stored, wanted)) ForEach(*common, [&](const Shape& i) { put(&want, Offset(i, wanted), Offset(i, all) & 127); });
    const absl::Status s = CopyCommon(stored, wanted, width, source.reader(), got.data());
    ASSERT_TRUE(s.ok()) << s;
    ASSERT_EQ(got, want) << trial << " " << stored.DebugString() << " " << wanted.DebugString();
  }
}

struct ReadCase { const char* name; Block stored, wanted; int64_t most_calls, most_bytes; };

class ReadTest : public testing::TestWithParam<ReadCase> {};

TEST_P(ReadTest, ReadsLittleMoreThanItNeeds) {
  const ReadCase& p = GetParam();
  Source source;
  source.bytes.resize(Size(p.stored.shape) * 4);
  for (size_t i = 0; i < source.bytes.size(); ++i) source.bytes[i] = static_cast<char>(i * 31 >> 3);
  std::vector<char> got(Size(p.wanted.shape) * 4), want = got;
  ForEach(*Intersection(p.stored, p.wanted), [&](const Shape& i) { std::memcpy(&want[Offset(i, p.wanted) * 4], &source.bytes[Offset(i, p.stored) * 4], 4); });
  const absl::Status s = CopyCommon(p.stored, p.wanted, 4, source.reader(), got.data());
  ASSERT_TRUE(s.ok()) << s;
  EXPECT_TRUE(got == want);
  EXPECT_LE(source.calls, p.most_calls);
  EXPECT_LE(source.read, p.most_bytes);
}

INSTANTIATE_TEST_SUITE_P(Cases, ReadTest, testing::ValuesIn(std::vector<ReadCase>{
    // All of it in one call, though larger than the scratch memory.
    {"Same", {{0, 0}, {1000, 1000}}, {{0, 0}, {1000, 1000}}, 1, 4000000},
    {"RowsOfIt", {{0, 0}, {1000, 1000}}, {{300, 0}, {100, 1000}}, 1, 400000},
    // Columns near each other: a megabyte at a time.
    {"NarrowRows", {{0, 0}, {1000, 1000}}, {{0, 0}, {1000, 100}}, 5, 4000000},
    // Columns far from each other: only what is wanted.
    {"WideRows", {{0, 0}, {20, 50000}}, {{0, 100}, {20, 50}}, 20, 4000},
    // One column block out of a stack of which most is not wanted.
    {"Stack", {{0, 0, 0}, {50, 100, 100}}, {{10, 0, 0}, {2, 100, 10}}, 1, 80000},
    {"StackOfFew", {{0, 0, 0}, {4, 1000, 100}}, {{0, 0, 0}, {4, 3, 100}}, 4, 4800},
    {"PartOfMore", {{10, 0}, {10, 100}}, {{0, 0}, {1000, 100}}, 1, 4000},
}), [](const auto& info) { return info.param.name; });

TEST(BlockTest, ErrorsOfReadingArePassedOn) {
  char out[16];
  const ReadRange bad = [](int64_t, void*, int64_t) { return absl::DataLossError("torn"); };
  EXPECT_EQ(CopyCommon({{0}, {4}}, {{0}, {4}}, 4, bad, out).message(), "torn");
  EXPECT_EQ(CopyCommon({{0, 0}, {4, 2}}, {{0, 0}, {4, 1}}, 4, bad, out).message(), "torn");
  EXPECT_TRUE(CopyCommon({{0}, {2}}, {{2}, {4}}, 4, bad, out).ok());   // nothing in common
}

}  // namespace
}  // namespace moe
