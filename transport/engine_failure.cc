// How the engine learns of failures and ends what they touch.
#include <utility>

#include "transport/engine.h"
#include "transport/tag.h"

namespace moe {
namespace {

constexpr absl::Duration kReleaseTime = absl::Seconds(1);
constexpr absl::Duration kAbandonTime = absl::Milliseconds(500);
// How long the control connection has to tell why a link broke.
constexpr absl::Duration kLinkGrace = absl::Seconds(1);
// A wait that lasts longer is told to the other members, who compare it with what they are doing.
constexpr absl::Duration kStallTime = absl::Seconds(1);

}  // namespace

void Engine::AbortAll(const absl::Status& reason) {
  if (fork_guard_.in_child()) return;
  Notice notice;
  notice.kind = Notice::Kind::kFailAll;
  notice.rank = p2p_->rank();
  notice.status = reason.ok() ? absl::CancelledError("aborted") : reason;
  control_->inbox()->Push(notice);
  FailureInfo info = GetFailureInfo(notice.status);
  if (info.origin_rank < 0) info.origin_rank = p2p_->rank();
  notice.status = WithFailureInfo(notice.status, info);
  control_->Tell(notice);
}

void Engine::AbortGroup(const Group& group, const absl::Status& reason) {
  if (fork_guard_.in_child()) return;
  Notice notice;
  notice.kind = Notice::Kind::kFailGroup;
  notice.group = group.id;
  notice.rank = p2p_->rank();
  notice.status = reason.ok() ? absl::CancelledError("aborted") : reason;
  control_->inbox()->Push(notice);
  control_->Tell(notice);
}

void Engine::ApplyNotices() {
  for (Notice& n : control_->inbox()->Take()) {
    auto it = groups_.find(n.group);
    std::shared_ptr<Group> group = it == groups_.end() ? nullptr : it->second.lock();
    switch (n.kind) {
      case Notice::Kind::kFailAll:
        FailAll(n.status);
        break;
      case Notice::Kind::kFailGroup:
        if (group != nullptr) Fail(group.get(), n.status, /*tell=*/false);
        else if (closed_groups_.count(n.group) == 0) failed_ids_.emplace(n.group, n.status);
        break;
      case Notice::Kind::kStall: {
        if (group != nullptr) {
          CheckWaiting(group.get(), n.descriptor);
        } else if (auto closed = closed_groups_.find(n.group); closed != closed_groups_.end() && n.descriptor.sequence >= closed->second) {
          Notice answer = n;
          answer.kind = Notice::Kind::kFailGroup;
          answer.status = InvalidArgument("group ", n.group, ": rank ", n.rank, " waits in operation ", n.descriptor.sequence, ", ", ToString(n.descriptor),
                                          ", but rank ", p2p_->rank(), " has destroyed the group after ", closed->second, " operations");
          control_->Tell(answer);
        }
        break;
      }
      case Notice::Kind::kAllLeft:
        all_left_ = true;
        break;
    }
  }
}

void Engine::CheckWaiting(Group* group, const Descriptor& theirs) {
  if (theirs.sequence < group->next_sequence) {
    const Descriptor& mine = group->recent[theirs.sequence % Group::kRecent];
    if (mine.sequence == theirs.sequence && !Agree(mine, theirs)) Fail(group, Disagreement(group->id, group->epoch, mine, theirs), /*tell=*/true);
  } else if (leaving_) {
    FailureInfo info;
    info.origin_rank = p2p_->rank();
    info.failed_ranks = {theirs.source, p2p_->rank()};
    info.group = group->id;
    info.epoch = group->epoch;
    info.sequence = theirs.sequence;
    Fail(group, WithFailureInfo(InvalidArgument("group ", group->id, ": rank ", theirs.source, " waits in operation ", theirs.sequence, ", ", ToString(theirs),
                                                ", but rank ", p2p_->rank(), " has called Shutdown after ", group->next_sequence, " operations"), info),
         /*tell=*/true);
  } else {
    group->waiting[theirs.source] = theirs;
  }
}

void Engine::ReportStalls() {
  const absl::Time now = absl::Now();
  // Every waiting rank tells every other through rank 0: a large job waits longer before that.
  const absl::Duration stall = kStallTime * (1.0 + static_cast<double>(p2p_->world_size()) / 64);
  for (PostedOp* op : ops_) {
    if (op->reported_ || op->failing_ || op->descriptor_.kind == MessageKind::kNone || op->descriptor_.kind >= MessageKind::kSend) continue;
    if (op->waiting_since_ == absl::InfiniteFuture()) {
      op->waiting_since_ = now;
    } else if (now - op->waiting_since_ > stall) {
      op->reported_ = true;
      Notice n;
      n.kind = Notice::Kind::kStall;
      n.group = op->group_->id;
      n.rank = p2p_->rank();
      n.descriptor = op->descriptor_;
      control_->Tell(n);
    }
  }
}

void Engine::Fail(Group* group, const absl::Status& status, bool tell) {
  if (!group->status.ok()) return;
  group->status = status;
  recorder_->End(flight::RankState::kFailed, status.message());
  if (group->number >= 0) discard_.push_back(group->number);
  if (tell) {
    Notice n;
    n.kind = Notice::Kind::kFailGroup;
    n.group = group->id;
    n.rank = p2p_->rank();
    n.status = status;
    control_->Tell(n);
  }
  const std::vector<PostedOp*> ops = ops_;  // BeginFail takes out what has ended
  for (PostedOp* op : ops) {
    if (op->group_.get() == group) BeginFail(op, status);
  }
}

void Engine::FailAll(const absl::Status& status) {
  if (status_.ok()) status_ = status;
  recorder_->End(flight::RankState::kFailed, status_.message());
  for (auto& [id, weak] : groups_) {
    std::shared_ptr<Group> group = weak.lock();
    if (group != nullptr && group->status.ok()) group->status = status_;
  }
  const std::vector<PostedOp*> ops = ops_;
  for (PostedOp* op : ops) BeginFail(op, status_);
  if (!severed_) {
    severed_ = true;
    p2p_->Sever();
    if (failing_ > 0) release_deadline_ = absl::Now() + kAbandonTime;
  }
}

void Engine::BeginFail(PostedOp* op, const absl::Status& status) {
  if (op->failing_) return;
  op->failing_ = true;
  op->status_ = status;
  ++failing_;
  for (P2pRequest& r : op->requests_) {
    if (r.state == P2pRequest::State::kPending) p2p_->Cancel(&r);
  }
  if (op->outstanding_ == 0) Finish(op, status);
  else if (release_deadline_ == absl::InfiniteFuture()) release_deadline_ = absl::Now() + kReleaseTime;
}

void Engine::CheckLinks() {
  if (!status_.ok() || p2p_->link_status().ok()) return;
  const absl::Time now = absl::Now();
  if (link_deadline_ == absl::InfiniteFuture()) link_deadline_ = now + kLinkGrace;
  else if (now > link_deadline_) AbortAll(p2p_->link_status());
}

void Engine::CheckReleases() {
  if (failing_ == 0) {
    release_deadline_ = absl::InfiniteFuture();
    return;
  }
  if (absl::Now() < release_deadline_) return;
  absl::Status first;
  for (PostedOp* op : ops_) {
    if (op->failing_) { first = op->status_; break; }
  }
  if (!severed_) {
    Log(log_, LogLevel::kWarning, absl::StrCat("transport: the buffers of a failed operation are not released by the peers, cutting all links: ", first.message()));
    release_deadline_ = absl::InfiniteFuture();
    AbortAll(first);
    ApplyNotices();
    return;
  }
  Log(log_, LogLevel::kWarning, absl::StrCat("transport: tearing down the transport to get buffers back: ", first.message()));
  p2p_->Abandon();
  const std::vector<PostedOp*> ops = ops_;
  for (PostedOp* op : ops) {
    op->outstanding_ = 0;
    for (P2pRequest& r : op->requests_) r.state = P2pRequest::State::kDone;
    if (op->failing_) Finish(op, op->status_);
  }
}

}  // namespace moe
