#include <cstring>

#include "absl/strings/str_join.h"
#include "transport/conformance/cases.h"

namespace moe::conformance {

std::vector<int64_t> AllRanks(Transport* t) {
  std::vector<int64_t> all;
  for (int64_t r = 0; r < t->world_size(); ++r) all.push_back(r);
  return all;
}

namespace {
inline uint64_t PatternWord(uint64_t key, uint64_t word) {
  uint64_t h = (key + word) * 0x9e3779b97f4a7c15u;
  h ^= h >> 31;
  return h * 0xbf58476d1ce4e5b9u;
}
}  // namespace

uint8_t PatternByte(uint64_t key, int64_t i) { return static_cast<uint8_t>(PatternWord(key, i / 8) >> (i % 8 * 8)); }

void FillPattern(uint64_t key, void* data, int64_t bytes) {
  auto* p = static_cast<uint8_t*>(data);
  int64_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    const uint64_t w = PatternWord(key, i / 8);
    std::memcpy(p + i, &w, 8);
  }
  for (; i < bytes; ++i) p[i] = PatternByte(key, i);
}

int64_t FindWrongByte(uint64_t key, const void* data, int64_t bytes) {
  const auto* p = static_cast<const uint8_t*>(data);
  for (int64_t i = 0; i < bytes;) {
    const uint64_t w = PatternWord(key, i / 8);
    if (i + 8 <= bytes && std::memcmp(p + i, &w, 8) == 0) { i += 8; continue; }
    for (int64_t end = std::min(i + 8, bytes); i < end; ++i) {
      if (p[i] != PatternByte(key, i)) return i;
    }
  }
  return -1;
}

absl::Status ExpectError(const absl::Status& status, absl::StatusCode code, const std::vector<std::string>& words) {
  if (status.code() != code) return Internal("expected ", absl::StatusCodeToString(code), ", got ", status.ToString());
  for (const std::string& w : words) {
    if (status.message().find(w) == absl::string_view::npos) return Internal("expected the words {", absl::StrJoin(words, "} {"), "} in: ", status.ToString());
  }
  return absl::OkStatus();
}

}  // namespace moe::conformance
