#include "core/base/status.h"

#include <cstring>

#include "absl/strings/cord.h"

namespace moe {
namespace {

constexpr char kUrl[] = "moe.failure_info";

void Put(std::string* s, int64_t v) { s->append(reinterpret_cast<const char*>(&v), sizeof(v)); }

}  // namespace

absl::Status WithFailureInfo(absl::Status status, const FailureInfo& info) {
  if (status.ok()) return status;
  std::string s;
  for (int64_t v : {info.origin_rank, info.group, info.epoch, info.sequence}) Put(&s, v);
  for (int64_t v : info.failed_ranks) Put(&s, v);
  status.SetPayload(kUrl, absl::Cord(s));
  return status;
}

FailureInfo GetFailureInfo(const absl::Status& status) {
  FailureInfo info;
  auto payload = status.GetPayload(kUrl);
  if (!payload) return info;
  std::string s(*payload);
  std::vector<int64_t> v(s.size() / sizeof(int64_t));
  std::memcpy(v.data(), s.data(), v.size() * sizeof(int64_t));
  if (v.size() < 4) return info;
  info.origin_rank = v[0];
  info.group = v[1];
  info.epoch = v[2];
  info.sequence = v[3];
  info.failed_ranks.assign(v.begin() + 4, v.end());
  return info;
}

absl::Status Annotate(const absl::Status& status, const std::string& context) {
  if (status.ok()) return status;
  absl::Status out(status.code(), absl::StrCat(context, ": ", status.message()));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& c) { out.SetPayload(url, c); });
  return out;
}

}  // namespace moe
