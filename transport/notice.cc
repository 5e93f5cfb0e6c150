#include "transport/notice.h"

#include <utility>

#include "absl/strings/cord.h"
#include "transport/bytes.h"

namespace moe {
Notice Detached(const Notice& notice) {
  Notice copy = notice;
  if (notice.status.ok()) return copy;
  copy.status = absl::Status(notice.status.code(), std::string(notice.status.message()));
  notice.status.ForEachPayload([&](absl::string_view url, const absl::Cord& cord) { copy.status.SetPayload(url, absl::Cord(std::string(cord))); });
  return copy;
}

std::string Encode(const Notice& notice) {
  std::string s;
  const FailureInfo info = GetFailureInfo(notice.status);
  for (int64_t v : {static_cast<int64_t>(notice.kind), notice.group, notice.rank, static_cast<int64_t>(notice.status.code()),
                    info.origin_rank, info.group, info.epoch, info.sequence, static_cast<int64_t>(info.failed_ranks.size())}) {
    PutInt(&s, v);
  }
  for (int64_t v : info.failed_ranks) PutInt(&s, v);
  PutText(&s, notice.status.message());
  s.append(reinterpret_cast<const char*>(&notice.descriptor), sizeof(notice.descriptor));
  return s;
}

bool Decode(const std::string& bytes, Notice* notice) {
  ByteReader in(bytes);
  int64_t kind = 0, code = 0, failed = 0;
  FailureInfo info;
  if (!in.Int(&kind) || !in.Int(&notice->group) || !in.Int(&notice->rank) || !in.Int(&code) || !in.Int(&info.origin_rank) ||
      !in.Int(&info.group) || !in.Int(&info.epoch) || !in.Int(&info.sequence) || !in.Int(&failed)) {
    return false;
  }
  if (kind < 1 || kind > 3 || code < 0 || code > 16 || failed < 0 || failed > static_cast<int64_t>(bytes.size() / sizeof(int64_t))) return false;
  info.failed_ranks.resize(failed);
  for (int64_t& r : info.failed_ranks) {
    if (!in.Int(&r)) return false;
  }
  std::string message;
  if (!in.Text(&message) || !in.Raw(&notice->descriptor, sizeof(notice->descriptor)) || !in.AtEnd()) return false;
  if (notice->descriptor.kind > TransportOpKind::kRecv) return false;
  notice->kind = static_cast<Notice::Kind>(kind);
  notice->status = WithFailureInfo(absl::Status(static_cast<absl::StatusCode>(code), message), info);
  return true;
}

void NoticeInbox::Push(const Notice& notice) {
  Notice copy = Detached(notice);
  std::lock_guard<std::mutex> lock(mu_);
  notices_.push_back(std::move(copy));
  pending_.store(true, std::memory_order_release);
  if (wake_) wake_();
}

std::vector<Notice> NoticeInbox::Take() {
  std::lock_guard<std::mutex> lock(mu_);
  pending_.store(false, std::memory_order_release);
  return std::exchange(notices_, {});
}

void NoticeInbox::SetWake(std::function<void()> wake) {
  std::lock_guard<std::mutex> lock(mu_);
  wake_ = std::move(wake);
}

}  // namespace moe
