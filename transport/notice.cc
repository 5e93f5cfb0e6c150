#include "transport/notice.h"

#include <cstring>

namespace moe {
namespace {

void Put(std::string* s, int64_t v) { s->append(reinterpret_cast<const char*>(&v), sizeof(v)); }
void Put(std::string* s, absl::string_view text) { Put(s, static_cast<int64_t>(text.size())); s->append(text.data(), text.size()); }

class Reader {
 public:
  explicit Reader(const std::string& s) : s_(s) {}
  bool Get(int64_t* v) { return Raw(v, sizeof(*v)); }
  bool Get(std::string* text) {
    int64_t n = 0;
    if (!Get(&n) || n < 0 || n > static_cast<int64_t>(s_.size() - at_)) return false;
    text->assign(s_, at_, n);
    at_ += n;
    return true;
  }
  bool Raw(void* to, size_t n) {
    if (s_.size() - at_ < n) return false;
    std::memcpy(to, s_.data() + at_, n);
    at_ += n;
    return true;
  }
  bool AtEnd() const { return at_ == s_.size(); }

 private:
  const std::string& s_;
  size_t at_ = 0;
};

}  // namespace

std::string Encode(const Notice& notice) {
  std::string s;
  const FailureInfo info = GetFailureInfo(notice.status);
  for (int64_t v : {static_cast<int64_t>(notice.kind), notice.group, notice.rank, static_cast<int64_t>(notice.status.code()),
                    info.origin_rank, info.group, info.epoch, info.sequence, static_cast<int64_t>(info.failed_ranks.size())}) {
    Put(&s, v);
  }
  for (int64_t v : info.failed_ranks) Put(&s, v);
  Put(&s, notice.status.message());
  s.append(reinterpret_cast<const char*>(&notice.descriptor), sizeof(notice.descriptor));
  return s;
}

bool Decode(const std::string& bytes, Notice* notice) {
  Reader in(bytes);
  int64_t kind = 0, code = 0, failed = 0;
  FailureInfo info;
  if (!in.Get(&kind) || !in.Get(&notice->group) || !in.Get(&notice->rank) || !in.Get(&code) || !in.Get(&info.origin_rank) ||
      !in.Get(&info.group) || !in.Get(&info.epoch) || !in.Get(&info.sequence) || !in.Get(&failed)) {
    return false;
  }
  if (kind < 1 || kind > 3 || code < 0 || code > 16 || failed < 0 || failed > static_cast<int64_t>(bytes.size() / sizeof(int64_t))) return false;
  info.failed_ranks.resize(failed);
  for (int64_t& r : info.failed_ranks) {
    if (!in.Get(&r)) return false;
  }
  std::string message;
  if (!in.Get(&message) || !in.Raw(&notice->descriptor, sizeof(notice->descriptor)) || !in.AtEnd()) return false;
  if (notice->descriptor.kind > OpKind::kRecv) return false;
  notice->kind = static_cast<Notice::Kind>(kind);
  notice->status = WithFailureInfo(absl::Status(static_cast<absl::StatusCode>(code), message), info);
  return true;
}

void NoticeInbox::Push(Notice notice) {
  std::lock_guard<std::mutex> lock(mu_);
  notices_.push_back(std::move(notice));
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
