// The control plane's own thread: the only one that touches the connections.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "transport/bootstrap/control_plane.h"
#include "transport/bytes.h"

namespace moe {
namespace {

constexpr absl::Duration kCloseTime = absl::Seconds(2);
constexpr absl::Duration kFarewell = absl::Milliseconds(200);

int ToMillis(absl::Duration d) { return static_cast<int>(absl::ToInt64Milliseconds(std::max(d, absl::ZeroDuration()))) + 1; }

}  // namespace

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
