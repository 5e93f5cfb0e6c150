#include "transport/engine.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "transport/tag.h"

namespace moe {
namespace {

// Longest sleep, so that deadlines are served.
constexpr absl::Duration kNap = absl::Milliseconds(20);

inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

bool IsCollective(MessageKind k) { return k != MessageKind::kNone && k != MessageKind::kSend && k != MessageKind::kRecv; }

class OpWork final : public Work {
 public:
  OpWork(std::shared_ptr<Engine> engine, std::unique_ptr<PostedOp> op) : engine_(std::move(engine)), op_(std::move(op)) {}
  ~OpWork() override { engine_->Release(std::move(op_)); }
  absl::StatusOr<bool> Test() override { return engine_->Test(op_.get()); }
  absl::Status Wait() override { return engine_->Wait(op_.get()); }

 private:
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<PostedOp> op_;
};

}  // namespace

Engine::Engine(std::unique_ptr<P2p> p2p, std::shared_ptr<Control> control, const EngineOptions& options, LogSink log)
    : p2p_(std::move(p2p)), control_(std::move(control)), options_(options), log_(std::move(log)),
      recorder_(FlightRecorder::Make(options.flight_dir, p2p_->rank(), p2p_->world_size(), options.epoch, log_)) {
  control_->inbox()->SetWake([this] { p2p_->Wake(); });
}

Engine::~Engine() { Close(); }

absl::Status Engine::CheckFork() const {
  if (!fork_guard_.in_child()) return absl::OkStatus();
  return FailedPrecondition("this handle was made before fork() and works only in the process that made it; make a new engine in the child "
                            "(or start the child with exec)");
}

absl::Status Engine::StatusOf(const Group& group) const { return !group.status.ok() ? group.status : status_; }

absl::StatusOr<WorkPtr> Engine::Post(std::unique_ptr<PostedOp> op) {
  MOE_RETURN_IF_ERROR(CheckFork());
  std::lock_guard<std::mutex> lock(mu_);
  if (control_->inbox()->pending()) ApplyNotices();
  Group* group = op->group_.get();
  MOE_RETURN_IF_ERROR(StatusOf(*group));
  if (leaving_) return FailedPrecondition("group ", group->id, ": an operation after Shutdown has begun");
  Descriptor* d = &op->descriptor_;
  d->source = static_cast<int32_t>(p2p_->rank());
  if (IsCollective(d->kind)) {
    d->sequence = group->next_sequence++;
    d->history = group->history;
    group->history = Extend(group->history, *d);
    group->recent[d->sequence % Group::kRecent] = *d;
    if (!group->waiting.empty()) {
      for (const auto& [rank, theirs] : std::exchange(group->waiting, {})) CheckWaiting(group, theirs);
      MOE_RETURN_IF_ERROR(group->status);
    }
  }
  Record(op.get());
  op->p2p_ = p2p_.get();
  op->pool_ = &scratch_;
  op->dirty_ = true;
  ops_.push_back(op.get());
  if (absl::Status s = op->Start(); !s.ok()) Fail(group, s, /*tell=*/true);
  else AdvanceOps();
  return WorkPtr(std::make_unique<OpWork>(shared_from_this(), std::move(op)));
}

void Engine::Record(PostedOp* op) {
  const Descriptor& d = op->descriptor_;
  flight::Record& r = op->record_;
  r.group = op->group_->id;
  r.sequence = IsCollective(d.kind) ? d.sequence : -1;
  r.count = d.count;
  r.kind = static_cast<uint8_t>(d.kind);
  r.dtype = d.dtype;
  r.reduce = d.reduce;
  r.root = d.root;
  std::memcpy(r.what, d.label.text, sizeof(d.label.text));
  op->recorder_ = recorder_.get();
  recorder_->Post(&r);
}

absl::StatusOr<bool> Engine::Test(PostedOp* op) {
  MOE_RETURN_IF_ERROR(CheckFork());
  std::lock_guard<std::mutex> lock(mu_);
  if (!op->done_) Progress();
  if (op->done_ && !op->status_.ok()) return op->status_;
  return op->done_;
}

absl::Status Engine::Wait(PostedOp* op, absl::Time deadline) {
  MOE_RETURN_IF_ERROR(CheckFork());
  std::unique_lock<std::mutex> lock(mu_);
  Drive(lock, deadline, [op] { return op->done_; });
  return op->done_ ? op->status_ : absl::DeadlineExceededError("not finished");
}

void Engine::Release(std::unique_ptr<PostedOp> op) {
  if (fork_guard_.in_child()) {
    op.release();  // the parent's transport state in it must not be touched
    return;
  }
  std::unique_lock<std::mutex> lock(mu_);
  Drive(lock, absl::InfiniteFuture(), [&] { return op->done_; });
}

void Engine::Cancel(PostedOp* op, const absl::Status& status) {
  std::unique_lock<std::mutex> lock(mu_);
  if (!op->done_) BeginFail(op, status);
  Drive(lock, absl::InfiniteFuture(), [op] { return op->done_; });
}

void Engine::Drive(std::unique_lock<std::mutex>& lock, absl::Time deadline, const std::function<bool()>& done) {
  int idle = 0;
  while (!done()) {
    if (driving_) {
      ++followers_;
      cv_.wait_for(lock, absl::ToChronoNanoseconds(kNap));
      --followers_;
    } else {
      driving_ = true;
      while (!done()) {
        if (!Progress()) {
          Pause(lock, &idle);
          if (deadline != absl::InfiniteFuture() && absl::Now() >= deadline) break;
        } else if (!done()) {
          idle = 0;
          lock.unlock();  // others may want to post
          lock.lock();
        }
      }
      driving_ = false;
      if (followers_ > 0) cv_.notify_all();
    }
    if (deadline != absl::InfiniteFuture() && absl::Now() >= deadline) return;
  }
}

void Engine::Pause(std::unique_lock<std::mutex>& lock, int* idle) {
  if (++*idle <= options_.spins) {
    lock.unlock();
    CpuRelax();
    lock.lock();
  } else if (*idle <= options_.spins + options_.yields) {
    lock.unlock();
    sched_yield();
    lock.lock();
  } else {
    ReportStalls();
    if (control_->inbox()->pending() || !p2p_->PrepareBlock()) return;
    lock.unlock();
    p2p_->Block(kNap);
    lock.lock();
  }
}

bool Engine::Progress() {
  bool moved = false;
  if (control_->inbox()->pending()) {
    ApplyNotices();
    moved = true;
  }
  moved |= p2p_->Progress();
  for (int64_t number : discard_) {
    for (TagClass c : {TagClass::kCollective, TagClass::kUser}) p2p_->Discard(GroupTag(c, options_.epoch, number), kGroupTagMask);
  }
  moved |= AdvanceOps();
  CheckLinks();
  CheckReleases();
  return moved;
}

bool Engine::AdvanceOps() {
  bool moved = false;
  for (size_t i = 0; i < ops_.size();) {
    PostedOp* op = ops_[i];
    if (!op->dirty_) { ++i; continue; }
    op->dirty_ = false;
    moved = true;
    if (op->failing_) {
      if (op->outstanding_ == 0) Finish(op, op->status_);
      else ++i;
    } else if (op->broken_) {
      ++i;  // CheckLinks fails it, unless the cause is told before
    } else {
      absl::StatusOr<bool> done = op->Advance();
      if (!done.ok()) {
        Fail(op->group_.get(), done.status(), /*tell=*/true);
        i = 0;
      } else if (*done) {
        Finish(op, absl::OkStatus());
      } else {
        ++i;
      }
    }
  }
  return moved;
}

void Engine::Finish(PostedOp* op, const absl::Status& status) {
  if (op->failing_) --failing_;
  op->done_ = true;
  op->status_ = status;
  recorder_->Done(&op->record_, op->started_, status.ok());
  for (ScratchPool::Buffer& b : op->scratch_) scratch_.Put(std::move(b));
  op->scratch_.clear();
  for (size_t i = 0; i < ops_.size(); ++i) {
    if (ops_[i] == op) { ops_[i] = ops_.back(); ops_.pop_back(); break; }
  }
  if (followers_ > 0) cv_.notify_all();
}

absl::StatusOr<int64_t> Engine::NextGroupNumber() {
  MOE_RETURN_IF_ERROR(CheckFork());
  std::lock_guard<std::mutex> lock(mu_);
  if (next_number_ > kMaxGroupNumber) {
    return absl::ResourceExhaustedError(absl::StrCat("rank ", p2p_->rank(), " has made ", next_number_, " groups, the most of one transport; keep and reuse groups"));
  }
  return next_number_;
}

void Engine::Register(const std::shared_ptr<Group>& group) {
  std::lock_guard<std::mutex> lock(mu_);
  groups_[group->id] = group;
  recorder_->AddGroup(group->id, group->rank, group->members);
}

void Engine::SetNumber(const std::shared_ptr<Group>& group, int64_t number) {
  std::lock_guard<std::mutex> lock(mu_);
  group->number = number;
  next_number_ = std::max(next_number_, number + 1);
}

void Engine::Unregister(const Group& group) {
  if (fork_guard_.in_child()) return;
  std::lock_guard<std::mutex> lock(mu_);
  groups_.erase(group.id);
  if (group.number >= 0) closed_groups_[group.id] = group.next_sequence;
}

absl::Status Engine::GroupStatus(int64_t id) {
  MOE_RETURN_IF_ERROR(CheckFork());
  std::lock_guard<std::mutex> lock(mu_);
  if (control_->inbox()->pending()) ApplyNotices();
  MOE_RETURN_IF_ERROR(status_);
  if (leaving_) return FailedPrecondition("group ", id, ": made after Shutdown has begun");
  if (auto it = failed_ids_.find(id); it != failed_ids_.end()) return it->second;
  if (auto it = groups_.find(id); it != groups_.end() && !it->second.expired()) {
    return absl::AlreadyExistsError(absl::StrCat("rank ", p2p_->rank(), " has a group with id ", id, "; ids are unique in the job"));
  }
  return absl::OkStatus();
}

}  // namespace moe
