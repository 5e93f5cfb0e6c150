#include "transport/bootstrap/control_plane.h"

#include <poll.h>
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
constexpr absl::Duration kCloseTime = absl::Seconds(2);
constexpr absl::Duration kFarewell = absl::Milliseconds(200);

int ToMillis(absl::Duration d) { return static_cast<int>(absl::ToInt64Milliseconds(std::max(d, absl::ZeroDuration()))) + 1; }

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

// ---- the thread ----

void ControlPlane::Loop() {
  const absl::Duration beat = std::min(options_.heartbeat / 5, absl::Seconds(1));
  absl::Time next_beat = absl::Now();
  for (;;) {
    std::vector<pollfd> fds = {{wake_fd_, POLLIN, 0}};
    std::vector<int64_t> whose = {-1};
    for (int64_t r = 0; r < options_.world_size; ++r) {
      if (peers_[r] == nullptr) continue;
      fds.push_back({peers_[r]->fd(), static_cast<int16_t>(POLLIN | (peers_[r]->unsent() ? POLLOUT : 0)), 0});
      whose.push_back(r);
    }
    poll(fds.data(), fds.size(), ToMillis(next_beat - absl::Now()));
    uint64_t count;
    if (fds[0].revents != 0 && read(wake_fd_, &count, sizeof(count)) < 0) count = 0;
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (stop_) break;
    }
    DrainOutgoing();
    const absl::Time now = absl::Now();
    for (size_t i = 1; i < fds.size(); ++i) {
      const int64_t r = whose[i];
      if (fds[i].revents == 0 || peers_[r] == nullptr) continue;
      absl::Status s = peers_[r]->Flush();
      if (s.ok()) s = peers_[r]->Read();
      heard_[r] = now;
      Frame frame;
      while (peers_[r] != nullptr && peers_[r]->Next(&frame)) Handle(r, std::move(frame));
      if (!s.ok() && peers_[r] != nullptr) Died(r, std::string(s.message()));
    }
    if (now >= next_beat) {
      // If this very process was stopped, the others' words are still in the sockets: their silence does not count.
      if (now - next_beat > options_.heartbeat / 2) heard_.assign(heard_.size(), now);
      next_beat = now + beat;
      for (auto& p : peers_) {
        if (p != nullptr && !p->unsent()) p->Write(FrameType::kHeartbeat, "").IgnoreError();
      }
      CheckHeartbeats(now);
    }
  }
  FinishWriting();
}

void ControlPlane::DrainOutgoing() {
  std::vector<Outgoing> frames;
  {
    std::lock_guard<std::mutex> lock(mu_);
    frames.swap(outgoing_);
  }
  for (const Outgoing& o : frames) {
    for (int64_t r = 0; r < options_.world_size; ++r) {
      // A write that fails is followed by a read that tells the death.
      if (peers_[r] != nullptr && r != o.except && (o.to < 0 || o.to == r)) peers_[r]->Write(o.type, o.payload).IgnoreError();
    }
  }
}

void ControlPlane::Handle(int64_t from, Frame frame) {
  switch (frame.type) {
    case FrameType::kNotice:
      HandleNotice(from, frame.payload);
      break;
    case FrameType::kGather:
      if (root()) Gathered(from, std::move(frame.payload));
      break;
    case FrameType::kGathered: {
      ByteReader in(frame.payload);
      std::vector<std::string> all(options_.world_size);
      for (std::string& s : all) {
        if (!in.Text(&s)) return Died(from, "its messages cannot be read");
      }
      std::lock_guard<std::mutex> lock(mu_);
      gathered_ = std::move(all);
      gathered_ready_ = true;
      cv_.notify_all();
      break;
    }
    case FrameType::kBye:
      if (root()) Bye(from);
      break;
    case FrameType::kAllLeft: {
      {
        std::lock_guard<std::mutex> lock(mu_);
        all_left_ = true;
      }
      Notice n;
      n.kind = Notice::Kind::kAllLeft;
      inbox()->Push(n);
      break;
    }
    case FrameType::kAskLeft: {
      std::string ranks;
      for (int64_t r : NotLeft()) PutInt(&ranks, r);
      Send(from, FrameType::kNotLeft, std::move(ranks));
      break;
    }
    case FrameType::kNotLeft: {
      std::lock_guard<std::mutex> lock(mu_);
      ByteReader in(frame.payload);
      not_left_.clear();
      for (int64_t r; in.Int(&r);) not_left_.push_back(r);
      have_not_left_ = true;
      cv_.notify_all();
      break;
    }
    default:
      break;  // a heartbeat
  }
}

void ControlPlane::HandleNotice(int64_t from, const std::string& payload) {
  Notice n;
  if (!Decode(payload, &n)) return Died(from, "its messages cannot be read");
  if (root()) Send(-1, FrameType::kNotice, payload, /*except=*/from);
  if (n.kind == Notice::Kind::kFailAll) SetFailure(n.status);
  inbox()->Push(n);
}

void ControlPlane::SetFailure(const absl::Status& status) {
  std::lock_guard<std::mutex> lock(mu_);
  if (failure_.ok()) failure_ = status;
  cv_.notify_all();
}

void ControlPlane::Died(int64_t rank, const std::string& how) {
  bool expected;
  {
    std::lock_guard<std::mutex> lock(mu_);
    expected = all_left_ || !failure_.ok();  // in order, or a consequence of what everybody knows
  }
  if (expected) {
    peers_[rank].reset();
    return;
  }
  Notice n;
  n.kind = Notice::Kind::kFailAll;
  n.rank = options_.rank;
  FailureInfo info;
  info.origin_rank = options_.rank;
  info.failed_ranks = {rank};
  n.status = WithFailureInfo(absl::UnavailableError(absl::StrCat("rank ", rank, " died (", how, ")")), info);
  Log(log_, LogLevel::kError, std::string(n.status.message()));
  SetFailure(n.status);
  if (root()) {
    const std::string payload = Encode(n);
    for (auto& p : peers_) {  // the lost one too: if it lives after all, it learns that it does not count any more
      if (p != nullptr) p->Write(FrameType::kNotice, payload).IgnoreError();
    }
  }
  peers_[rank].reset();
  inbox()->Push(n);
}

void ControlPlane::CheckHeartbeats(absl::Time now) {
  for (int64_t r = 0; r < options_.world_size; ++r) {
    if (peers_[r] == nullptr || now - heard_[r] <= options_.heartbeat) continue;
    Died(r, absl::StrCat("no heartbeat for ", absl::FormatDuration(options_.heartbeat), ": its process is stopped, or its machine or the network is down"));
  }
}

// What was queued still goes out. The connections then end by the readers' closing, since a close over unread bytes may destroy what
// is under way; rank 0 waits for that longer, the others have only rank 0.
void ControlPlane::FinishWriting() {
  DrainOutgoing();
  bool in_order;
  {
    std::lock_guard<std::mutex> lock(mu_);
    in_order = in_order_;
  }
  const absl::Time until = absl::Now() + (in_order ? kCloseTime : kFarewell);
  std::vector<bool> ended(peers_.size(), false);
  for (;;) {
    std::vector<pollfd> fds;
    for (size_t r = 0; r < peers_.size(); ++r) {
      auto& p = peers_[r];
      if (p == nullptr) continue;
      Frame ignored;
      const bool broken = !p->Flush().ok() || !p->Read().ok();
      while (p->Next(&ignored)) {
      }
      if (!broken && !ended[r] && !p->unsent()) {
        p->EndWriting();
        ended[r] = true;
      }
      // In order, a rank other than 0 has read the last word already.
      if (broken || (ended[r] && in_order && !root())) p.reset();
      else fds.push_back({p->fd(), static_cast<int16_t>(POLLIN | (p->unsent() ? POLLOUT : 0)), 0});
    }
    const absl::Duration left = until - absl::Now();
    if (fds.empty() || left <= absl::ZeroDuration()) break;
    poll(fds.data(), fds.size(), ToMillis(left));
  }
  peers_.clear();
}

}  // namespace moe
