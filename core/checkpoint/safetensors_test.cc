#include "core/checkpoint/safetensors.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"

namespace moe {
namespace {

std::string Path(const std::string& name) { return std::string(std::getenv("TEST_TMPDIR") ? std::getenv("TEST_TMPDIR") : "/tmp") + "/" + name; }

void WriteRaw(const std::string& path, const std::string& header, const std::string& data, int64_t claimed = -1) {
  std::ofstream f(path, std::ios::binary);
  const uint64_t n = claimed >= 0 ? static_cast<uint64_t>(claimed) : header.size();
  f.write(reinterpret_cast<const char*>(&n), 8);
  f << header << data;
}

std::string WriteSample() {
  const std::string path = Path("sample.safetensors");
  static const float a[6] = {1, 2, 3, 4, 5, 6};
  static const double b[2] = {0.5, -1e300};
  static const int64_t c[1] = {int64_t{1} << 40};
  auto sums = WriteSafetensors(path, {{"a", "F32", {2, 3}, a}, {"b", "F64", {2}, b}, {"c", "I64", {1}, c}, {"none", "F32", {0, 4}, nullptr}});
  EXPECT_TRUE(sums.ok()) << sums.status();
  EXPECT_EQ(sums->size(), 4u);
  EXPECT_EQ((*sums)[0], Checksum(a, sizeof(a)));
  EXPECT_EQ((*sums)[3], kChecksumStart);
  return path;
}

TEST(SafetensorsTest, RoundTrip) {
  auto r = SafetensorsReader::Open(WriteSample());
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ(*(*r)->ReadDoubles("a"), (std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(*(*r)->ReadDoubles("b"), (std::vector<double>{0.5, -1e300}));
  EXPECT_EQ(*(*r)->ReadInts("c"), (std::vector<int64_t>{int64_t{1} << 40}));
  EXPECT_EQ((*r)->tensors().at("none").shape, (std::vector<int64_t>{0, 4}));
  EXPECT_EQ((*r)->ReadDoubles("d").status().code(), absl::StatusCode::kNotFound);
}

TEST(SafetensorsTest, HalfAndBfloat) {
  const uint16_t half[8] = {0x3c00, 0xc000, 0x0001, 0x7bff, 0x7c00, 0xfc00, 0x7e00, 0x8000}, bf[2] = {0x3f80, 0xc040};
  ASSERT_TRUE(WriteSafetensors(Path("h"), {{"h", "F16", {8}, half}, {"b", "BF16", {2}, bf}}).ok());
  auto r = SafetensorsReader::Open(Path("h"));
  ASSERT_TRUE(r.ok()) << r.status();
  const std::vector<float> h = *(*r)->ReadFloats("h");
  EXPECT_EQ(std::vector<float>(h.begin(), h.begin() + 6), (std::vector<float>{1, -2, 5.9604644775390625e-08f, 65504, HUGE_VALF, -HUGE_VALF}));
  EXPECT_TRUE(std::isnan(h[6]));
  EXPECT_TRUE(h[7] == 0 && std::signbit(h[7]));
  EXPECT_EQ(*(*r)->ReadDoubles("b"), (std::vector<double>{1, -3}));
  EXPECT_EQ(*(*r)->ReadFloats("b"), (std::vector<float>{1, -3}));
}

TEST(SafetensorsTest, Integers) {
  const int32_t i32[2] = {-7, 1 << 30};
  const uint8_t u8[3] = {0, 1, 255};
  const int64_t i64[1] = {INT64_MIN};
  ASSERT_TRUE(WriteSafetensors(Path("i"), {{"i32", "I32", {2}, i32}, {"u8", "U8", {3}, u8}, {"i64", "I64", {}, i64}}).ok());
  auto r = SafetensorsReader::Open(Path("i"));
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ(*(*r)->ReadInts("i32"), (std::vector<int64_t>{-7, 1 << 30}));
  EXPECT_EQ(*(*r)->ReadInts("u8"), (std::vector<int64_t>{0, 1, 255}));
  EXPECT_EQ(*(*r)->ReadInts("i64"), (std::vector<int64_t>{INT64_MIN}));
  EXPECT_EQ((*r)->ReadDoubles("i32").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*SafetensorsReader::Open(WriteSample()))->ReadInts("a").status().code(), absl::StatusCode::kInvalidArgument);
}

// In parts, as a tensor larger than the memory would be.
TEST(SafetensorsTest, PartsGiveTheSameFileAndChecksums) {
  std::vector<int64_t> big(1000);
  for (size_t i = 0; i < big.size(); ++i) big[i] = static_cast<int64_t>(i * i * 2654435761u);
  const uint8_t odd[13] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
  const std::vector<SafetensorsEntry> entries = {{"empty", "F32", {3, 0}, nullptr}, {"big", "I64", {10, 100}, big.data()}, {"odd", "U8", {13}, odd}, {"none", "F64", {0}, nullptr}};
  auto sums = WriteSafetensors(Path("whole"), entries);
  ASSERT_TRUE(sums.ok()) << sums.status();
  auto w = SafetensorsWriter::Create(Path("parts"), entries);
  ASSERT_TRUE(w.ok()) << w.status();
  for (int64_t at = 0; at < 8000; at += 3200) ASSERT_TRUE((*w)->Write(reinterpret_cast<char*>(big.data()) + at, std::min<int64_t>(3200, 8000 - at)).ok());
  EXPECT_EQ((*w)->Write(odd, 5).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*w)->Write(odd, 14).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*w)->Finish().status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE((*w)->Write(odd, 8).ok());
  ASSERT_TRUE((*w)->Write(odd + 8, 5).ok());
  EXPECT_EQ((*w)->Write(odd, 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(Path("parts")));
  auto parts = (*w)->Finish();
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ(*parts, *sums);
  EXPECT_EQ(*ReadFile(Path("parts")), *ReadFile(Path("whole")));
  EXPECT_EQ((*w)->Finish().status().code(), absl::StatusCode::kFailedPrecondition);

  auto r = SafetensorsReader::Open(Path("parts"));
  ASSERT_TRUE(r.ok()) << r.status();
  int64_t middle[3];
  ASSERT_TRUE((*r)->ReadPart("big", 8 * 500, middle, 24).ok());
  EXPECT_TRUE(std::equal(middle, middle + 3, big.data() + 500));
  for (const auto& [offset, bytes] : std::vector<std::pair<int64_t, int64_t>>{{7984, 24}, {-8, 8}, {8001, 0}, {8, INT64_MAX}})
    EXPECT_EQ((*r)->ReadPart("big", offset, middle, bytes).code(), absl::StatusCode::kOutOfRange) << offset;
  EXPECT_EQ((*r)->Read("big", middle, 24).code(), absl::StatusCode::kDataLoss);
}

TEST(SafetensorsTest, WhatCannotBeWrittenIsRefused) {
  const float v[4] = {};
  const auto message = [&](std::vector<SafetensorsEntry> entries) {
    const auto s = WriteSafetensors(Path("refused"), entries).status();
    EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument) << s;
    EXPECT_FALSE(std::filesystem::exists(Path("refused")) || std::filesystem::exists(Path("refused.tmp")));
    return std::string(s.message());
  };
  EXPECT_NE(message({{"x", "F31", {4}, v}}).find("F31"), std::string::npos);
  EXPECT_NE(message({{"x", "F32", {-4}, v}}).find("tensor x"), std::string::npos);
  EXPECT_NE(message({{"x", "F32", {int64_t{1} << 61, 1}, v}}).find("tensor x"), std::string::npos);
  EXPECT_NE(message({{"x", "F32", {4}, v}, {"x", "F32", {4}, v}}).find("named x"), std::string::npos);
  EXPECT_NE(message({{"x", "F32", {4}, nullptr}}).find("tensor x has no data"), std::string::npos);
  EXPECT_NE(message({{"__metadata__", "F32", {4}, v}}).find("__metadata__"), std::string::npos);
  EXPECT_NE(message({{"\xff", "F32", {4}, v}}).find("name of a tensor"), std::string::npos);
}

TEST(SafetensorsTest, NamesMayBeAnyUtf8) {
  const float v[1] = {2};
  const std::string name = "a\"b\\c \n \xc3\xa9";
  ASSERT_TRUE(WriteSafetensors(Path("names"), {{name, "F32", {1}, v}}).ok());
  EXPECT_EQ(*(*SafetensorsReader::Open(Path("names")))->ReadFloats(name), std::vector<float>{2});
}

TEST(SafetensorsTest, ManyTensors) {
  const float v[1] = {1};
  std::vector<SafetensorsEntry> entries;
  for (int i = 0; i < 30000; ++i) entries.push_back({absl::StrCat("layers.", i / 300, ".moe.experts.", i % 300, ".w1.weight"), "F32", {1}, v});
  ASSERT_TRUE(WriteSafetensors(Path("many"), entries).ok());
  auto r = SafetensorsReader::Open(Path("many"));
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ((*r)->tensors().size(), 30000u);
}

TEST(SafetensorsTest, ChecksumSeesEveryByte) {
  std::string s(1001, 'x');
  const uint64_t base = Checksum(s.data(), 1001);
  for (size_t i = 0; i < s.size(); ++i) {
    s[i] ^= 0x40;
    EXPECT_NE(Checksum(s.data(), 1001), base) << i;
    s[i] ^= 0x40;
  }
  EXPECT_NE(Checksum(s.data(), 1000), base);
}

TEST(SafetensorsTest, EveryTruncationIsFound) {
  const std::string path = WriteSample();
  std::ifstream f(path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(f)), {});
  for (size_t n = 0; n < whole.size(); ++n) {
    std::ofstream(Path("cut"), std::ios::binary) << whole.substr(0, n);
    EXPECT_EQ(SafetensorsReader::Open(Path("cut")).status().code(), absl::StatusCode::kDataLoss) << n;
  }
}

TEST(SafetensorsTest, MalformedHeadersAreRefused) {
  const struct { const char* header; int64_t claimed; } bad[] = {
      {"{}", int64_t{1} << 50}, {"{}", 3}, {"[1]", -1}, {"{\"a\":1}", -1}, {"nonsense", -1},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", -1},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", -1},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", -1},
      {R"({"a":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})", -1},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", -1},
      // Numbers beyond 63 bits, offsets whose difference overflows.
      {R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[18446744073709551615,18446744073709551615]}})", -1},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-9223372036854775808,4]}})", -1},
      {R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", -1},
      {R"({"a":{"dtype":"F32","shape":{"0":1},"data_offsets":[0,4]}})", -1},
      {R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,4]}})", -1},
      {R"({"a":{"shape":[1],"data_offsets":[0,4]}})", -1},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})", -1},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":null}})", -1},
      {R"({"a":[]})", -1},
      // Bytes that belong to no tensor: at the end, at the beginning.
      {R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", -1},
      {R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[1,4]}})", -1},
      {R"({"":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", -1},
      {"", -1}, {"{\"a\xff\":1}", -1},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", -1},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}})", -1},
  };
  for (const auto& b : bad) {
    WriteRaw(Path("bad"), b.header, "1234", b.claimed);
    const absl::Status s = SafetensorsReader::Open(Path("bad")).status();
    EXPECT_EQ(s.code(), absl::StatusCode::kDataLoss) << b.header << " " << s;
    EXPECT_NE(s.message().find("bad"), absl::string_view::npos);
  }
}

// 2^62 floats are 2^64 bytes, which is 0 to whoever does not look.
TEST(SafetensorsTest, SizesThatAreRightOnlyModulo64BitsAreRefused) {
  WriteRaw(Path("wrap"), R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", "");
  EXPECT_EQ(SafetensorsReader::Open(Path("wrap")).status().code(), absl::StatusCode::kDataLoss);
  WriteRaw(Path("wrap"), R"({"a":{"dtype":"F32","shape":[4611686018427387904,0],"data_offsets":[0,0]}})", "");
  EXPECT_TRUE(SafetensorsReader::Open(Path("wrap")).ok());
  EXPECT_EQ(WriteSafetensors(Path("wrap"), {{"a", "F32", {int64_t{1} << 62}, nullptr}}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SafetensorsTest, DeepNestingIsNoStackOverflow) {
  const std::string deep(200000, '[');
  WriteRaw(Path("deep"), deep, "");
  EXPECT_EQ(SafetensorsReader::Open(Path("deep")).status().code(), absl::StatusCode::kDataLoss);
  WriteRaw(Path("deep"), "{\"a\":" + deep + std::string(200000, ']') + "}", "");
  EXPECT_EQ(SafetensorsReader::Open(Path("deep")).status().code(), absl::StatusCode::kDataLoss);
}

TEST(SafetensorsTest, MetadataAndUnknownDtypesArePassedOver) {
  WriteRaw(Path("meta"), R"({"__metadata__":{"format":"pt"},"q":{"dtype":"F4","shape":[8],"data_offsets":[0,4]}})", "1234");
  auto r = SafetensorsReader::Open(Path("meta"));
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ((*r)->tensors().size(), 1u);
  char raw[4];
  ASSERT_TRUE((*r)->Read("q", raw, 4).ok());
  EXPECT_EQ(std::string(raw, 4), "1234");
  EXPECT_NE((*r)->ReadDoubles("q").status().message().find("F4"), absl::string_view::npos);
}

TEST(SafetensorsTest, WhatIsNoFileIsAnErrorAtOnce) {
  EXPECT_EQ(SafetensorsReader::Open(Path("absent")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(SafetensorsReader::Open(Path("")).status().code(), absl::StatusCode::kInvalidArgument);   // a folder
  ASSERT_EQ(::mkfifo(Path("fifo").c_str(), 0600), 0);
  EXPECT_EQ(SafetensorsReader::Open(Path("fifo")).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SafetensorsTest, UnwritableFolderNamesTheFile) {
  for (const char* at : {"no/such/folder/x", "sample.safetensors/x"}) {
    const auto s = WriteSafetensors(Path(at), {}).status();
    EXPECT_EQ(s.code(), absl::StatusCode::kNotFound) << s;
    EXPECT_NE(s.message().find(at), absl::string_view::npos);
    EXPECT_EQ(WriteFileAtomically(Path(at), "text").code(), absl::StatusCode::kNotFound);
  }
}

// A limit on the size of files stands in for a full disk: the same path through the code, another errno.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    old_handler_ = ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &old_);
    rlimit now = old_;
    now.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    ::signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_{};
  void (*old_handler_)(int);
};

TEST(SafetensorsTest, AFullDiskLeavesTheOldFile) {
  const std::string path = Path("precious");
  const std::vector<double> v(4096, 1.5);
  ASSERT_TRUE(WriteSafetensors(path, {{"v", "F64", {2}, v.data()}}).ok());
  const std::string before = *ReadFile(path);
  absl::Status big, text;
  {
    const FullDisk full(8192);
    big = WriteSafetensors(path, {{"v", "F64", {4096}, v.data()}}).status();
    text = WriteFileAtomically(path, std::string(20000, 'x'));
  }
  for (const absl::Status& s : {big, text}) {
    EXPECT_EQ(s.code(), absl::StatusCode::kResourceExhausted) << s;
    EXPECT_NE(s.message().find(path), absl::string_view::npos) << s;
  }
  EXPECT_EQ(*ReadFile(path), before);
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
  ASSERT_TRUE(WriteSafetensors(path, {{"v", "F64", {4096}, v.data()}}).ok());
  EXPECT_EQ(*(*SafetensorsReader::Open(path))->ReadDoubles("v"), v);
}

TEST(SafetensorsTest, AnAbandonedWriterLeavesNothing) {
  const double v[2] = {};
  {
    auto w = SafetensorsWriter::Create(Path("abandoned"), {{"v", "F64", {2}, nullptr}});
    ASSERT_TRUE((*w)->Write(v, 8).ok());
    EXPECT_TRUE(std::filesystem::exists(Path("abandoned.tmp")));
  }
  EXPECT_FALSE(std::filesystem::exists(Path("abandoned.tmp")) || std::filesystem::exists(Path("abandoned")));
}

}  // namespace
}  // namespace moe
