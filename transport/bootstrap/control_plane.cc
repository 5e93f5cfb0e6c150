#include "transport/bootstrap/control_plane.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "transport/bytes.h"

namespace moe {
namespace {

constexpr int64_t kMaxFrame = int64_t{256} << 20;  // addresses of all ranks

}  // namespace

ControlPlane::ControlPlane(const RendezvousOptions& options, std::vector<std::unique_ptr<FrameSocket>> peers, LogSink log)
    : options_(options), log_(std::move(log)), peers_(std::move(peers)), heard_(options.world_size, absl::Now()), wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      parts_(options.world_size), have_(options.world_size), left_(options.world_size) {
  for (auto& p : peers_) {
    if (p != nullptr) p->set_max_payload(kMaxFrame);
  }
  // The program's signals are for its own threads; a new thread inherits the mask.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  thread_ = std::thread([this] { Loop(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ControlPlane::~ControlPlane() {
  Close(false);
  close(wake_fd_);
}

void ControlPlane::Wake() {
  const uint64_t one = 1;
  if (write(wake_fd_, &one, sizeof(one)) < 0) return;  // full: it is awake anyway
}

void ControlPlane::Send(int64_t to, FrameType type, std::string payload, int64_t except) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    outgoing_.push_back({to, except, type, std::move(payload)});
  }
  Wake();
}

void ControlPlane::Tell(const Notice& notice) { Send(-1, FrameType::kNotice, Encode(notice)); }

void ControlPlane::Leave() {
  if (root()) Bye(0);
  else Send(0, FrameType::kBye, "");
}

std::vector<int64_t> ControlPlane::NotLeft() {
  std::unique_lock<std::mutex> lock(mu_);
  if (!root()) {
    lock.unlock();
    Send(0, FrameType::kAskLeft, "");
    lock.lock();
    cv_.wait_for(lock, std::chrono::milliseconds(500), [this] { return have_not_left_; });
    return not_left_;
  }
  std::vector<int64_t> ranks;
  for (int64_t r = 0; r < options_.world_size; ++r) {
    if (!left_[r]) ranks.push_back(r);
  }
  return ranks;
}

absl::StatusOr<std::vector<std::string>> ControlPlane::AllGather(const std::string& mine, absl::Time deadline) {
  if (root()) Gathered(0, mine);
  else Send(0, FrameType::kGather, mine);
  std::unique_lock<std::mutex> lock(mu_);
  // Rank 0 knows who is missing and tells all; the others give it a moment for that.
  const auto until = absl::ToChronoTime(deadline + (root() ? absl::ZeroDuration() : absl::Seconds(2)));
  cv_.wait_until(lock, until, [this] { return gathered_ready_ || !failure_.ok(); });
  if (!gathered_ready_ && failure_.ok()) {
    FailureInfo info;
    info.origin_rank = options_.rank;
    for (int64_t r = 0; root() && r < options_.world_size; ++r) {
      if (!have_[r]) info.failed_ranks.push_back(r);
    }
    if (!root()) info.failed_ranks = {0};
    Notice n;
    n.rank = options_.rank;
    n.status = failure_ = WithFailureInfo(absl::DeadlineExceededError(absl::StrCat("rendezvous: ranks came but did not finish to start; missing ranks: ",
                                                                                  absl::StrJoin(info.failed_ranks, ", "))), info);
    outgoing_.push_back({-1, -1, FrameType::kNotice, Encode(n)});
    Wake();
  }
  MOE_RETURN_IF_ERROR(failure_);
  gathered_ready_ = false;
  return std::move(gathered_);
}

void ControlPlane::Gathered(int64_t rank, std::string part) {
  std::string all;
  {
    std::lock_guard<std::mutex> lock(mu_);
    parts_[rank] = std::move(part);
    have_[rank] = true;
    if (std::find(have_.begin(), have_.end(), false) != have_.end()) return;
    have_.assign(have_.size(), false);
    for (const std::string& p : parts_) PutText(&all, p);
    gathered_ = parts_;
    gathered_ready_ = true;
    cv_.notify_all();
  }
  Send(-1, FrameType::kGathered, std::move(all));
}

void ControlPlane::Bye(int64_t rank) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    left_[rank] = true;
    if (std::find(left_.begin(), left_.end(), false) != left_.end()) return;
    all_left_ = true;
  }
  Send(-1, FrameType::kAllLeft, "");
  Notice n;
  n.kind = Notice::Kind::kAllLeft;
  inbox()->Push(n);
}

void ControlPlane::Close(bool in_order) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (stop_) return;
    stop_ = true;
    in_order_ = in_order;
    if (!in_order && failure_.ok()) {
      Notice n;
      n.rank = options_.rank;
      FailureInfo info;
      info.origin_rank = options_.rank;
      info.failed_ranks = {options_.rank};
      n.status = WithFailureInfo(absl::UnavailableError(absl::StrCat("rank ", options_.rank, " left without Shutdown")), info);
      outgoing_.push_back({-1, -1, FrameType::kNotice, Encode(n)});
    }
  }
  Wake();
  thread_.join();
}

}  // namespace moe
