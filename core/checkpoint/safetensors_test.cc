#include "core/checkpoint/safetensors.h"

#include <cstdlib>
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
  const uint16_t half[4] = {0x3c00, 0xc000, 0x0001, 0x7bff}, bf[2] = {0x3f80, 0xc040};
  ASSERT_TRUE(WriteSafetensors(Path("h"), {{"h", "F16", {4}, half}, {"b", "BF16", {2}, bf}}).ok());
  auto r = SafetensorsReader::Open(Path("h"));
  EXPECT_EQ(*(*r)->ReadDoubles("h"), (std::vector<double>{1, -2, 5.9604644775390625e-08, 65504}));
  EXPECT_EQ(*(*r)->ReadDoubles("b"), (std::vector<double>{1, -3}));
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

TEST(SafetensorsTest, UnwritableFolderNamesTheFile) {
  const auto s = WriteSafetensors(Path("no/such/folder/x"), {}).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(s.message().find("no/such/folder/x"), absl::string_view::npos);
}

}  // namespace
}  // namespace moe
