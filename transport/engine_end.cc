// The end of an engine: the goodbye handshake, or the end without it.
#include <utility>

#include "transport/engine.h"

namespace moe {

absl::Status Engine::Shutdown() {
  MOE_RETURN_IF_ERROR(CheckFork());
  std::unique_lock<std::mutex> lock(mu_);
  if (closed_ || leaving_) return FailedPrecondition("Shutdown is called once");
  const absl::Time deadline = absl::Now() + options_.timeout;
  leaving_ = true;
  for (auto& [id, weak] : groups_) {
    if (std::shared_ptr<Group> group = weak.lock()) {
      for (const auto& [rank, theirs] : std::exchange(group->waiting, {})) CheckWaiting(group.get(), theirs);
    }
  }
  absl::Status result;
  Drive(lock, deadline, [this] { return ops_.empty() || !status_.ok(); });
  if (status_.ok() && !ops_.empty()) {
    result = absl::DeadlineExceededError(absl::StrCat("Shutdown: ", ops_.size(), " operations of rank ", p2p_->rank(), " are still in flight after ",
                                                      absl::FormatDuration(options_.timeout), ", the first is ", ToString(ops_[0]->descriptor_),
                                                      " in group ", ops_[0]->group_->id));
  } else if (status_.ok()) {
    control_->Leave();
    Drive(lock, deadline, [this] { return all_left_ || !status_.ok(); });
    if (status_.ok() && !all_left_) {
      lock.unlock();
      FailureInfo info;
      info.origin_rank = p2p_->rank();
      info.failed_ranks = control_->NotLeft();
      std::string who;
      for (int64_t r : info.failed_ranks) absl::StrAppend(&who, who.empty() ? "" : ", ", r);
      result = WithFailureInfo(absl::DeadlineExceededError(absl::StrCat("Shutdown: waited ", absl::FormatDuration(options_.timeout),
                                                                        " for the other ranks to call it; missing: ", who)), info);
      lock.lock();
    }
  }
  if (result.ok() && !all_left_) result = status_;
  lock.unlock();
  Close();
  return result;
}

void Engine::Close() {
  if (fork_guard_.in_child()) {
    // Nothing of the parent may be destroyed here: threads, connections and waiters do not exist in this process.
    if (!closed_) new std::shared_ptr<Engine>(shared_from_this());
    closed_ = true;
    return;
  }
  std::unique_lock<std::mutex> lock(mu_);
  if (closed_) return;
  closed_ = true;
  if (status_.ok()) {
    status_ = all_left_ ? FailedPrecondition("the transport was shut down") : absl::CancelledError("the transport was destroyed without Shutdown");
  }
  if (all_left_) recorder_->End(flight::RankState::kLeft, "");
  FailAll(status_);
  Drive(lock, absl::InfiniteFuture(), [this] { return ops_.empty(); });
  lock.unlock();
  control_->inbox()->SetWake(nullptr);
  control_->Close(all_left_);
  lock.lock();
  p2p_->Abandon();
}

}  // namespace moe
