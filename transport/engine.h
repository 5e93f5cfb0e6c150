// Drives the operations of one rank over a P2p: one lock, one list of operations in flight, waiting, and failures.
//
// Waiting: spin, then yield, then sleep in the transport with a timeout, so that news and deadlines are served. (With more
// ranks than cores spinning is ruinous: measured 160-320 us against 7-14 us for an 8-byte all-to-all of 4 ranks on 2 cores.)
// When several threads wait, one drives and the others sleep until it has ended something for them.
//
// Failure of a group: its operations cancel their messages and end, each with the same status, as soon as no buffer of
// the caller is in use. Messages that a peer may still be reading are released when the peer, poisoned too, discards them; after
// a second the links are cut, after that the transport is torn down: every wait ends within 2 s.
#ifndef MOE_TRANSPORT_ENGINE_H_
#define MOE_TRANSPORT_ENGINE_H_

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/time/time.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "core/comm/communicator.h"
#include "transport/control.h"
#include "transport/flight/recorder.h"
#include "transport/fork_guard.h"
#include "transport/group.h"
#include "transport/op.h"
#include "transport/p2p.h"

namespace moe {

struct EngineOptions {
  int64_t epoch = 0;
  absl::Duration timeout = absl::Seconds(60);  // of CreateGroup and Shutdown
  int spins = 30;                              // empty polls before yielding
  int yields = 2000;                            // yields before sleeping
  std::string flight_dir;                      // of the flight recorder; empty: in memory alone
};

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  Engine(std::unique_ptr<P2p> p2p, std::shared_ptr<Control> control, const EngineOptions& options, LogSink log);
  ~Engine();

  const P2p& p2p() const { return *p2p_; }
  int64_t epoch() const { return options_.epoch; }
  absl::Duration timeout() const { return options_.timeout; }

  // Starts the operation, with the next sequence number of its group if it is a collective.
  absl::StatusOr<WorkPtr> Post(std::unique_ptr<PostedOp> op);
  absl::StatusOr<bool> Test(PostedOp* op);
  // Until the operation ends or `deadline`; DEADLINE_EXCEEDED leaves it in flight.
  absl::Status Wait(PostedOp* op, absl::Time deadline = absl::InfiniteFuture());
  // Destroys an operation after its end.
  void Release(std::unique_ptr<PostedOp> op);
  // Ends an operation that is in flight with `status`; returns when its buffers are free.
  void Cancel(PostedOp* op, const absl::Status& status);

  // Poison, here and on the other ranks. Any thread.
  void AbortAll(const absl::Status& reason);
  void AbortGroup(const Group& group, const absl::Status& reason);
  // The poison of a group (that may not exist here yet), of the whole job, or OK.
  absl::Status GroupStatus(int64_t id);

  // Numbers groups of this rank, each number used once.
  absl::StatusOr<int64_t> NextGroupNumber();
  void Register(const std::shared_ptr<Group>& group);   // failures of its id reach it from now on
  void SetNumber(const std::shared_ptr<Group>& group, int64_t number);  // as agreed
  void Unregister(const Group& group);

  // The goodbye handshake. After it, and after Close, every call returns a status.
  absl::Status Shutdown();
  void Close();

 private:
  void Record(PostedOp* op);
  bool Progress();
  void Drive(std::unique_lock<std::mutex>& lock, absl::Time deadline, const std::function<bool()>& done);
  void Pause(std::unique_lock<std::mutex>& lock, int* idle);
  void ApplyNotices();
  void CheckWaiting(Group* group, const Descriptor& theirs);
  void ReportStalls();
  bool AdvanceOps();
  void CheckLinks();
  void CheckReleases();
  void Fail(Group* group, const absl::Status& status, bool tell);
  void FailAll(const absl::Status& status);
  void BeginFail(PostedOp* op, const absl::Status& status);
  void Finish(PostedOp* op, const absl::Status& status);
  absl::Status StatusOf(const Group& group) const;
  absl::Status CheckFork() const;

  const std::unique_ptr<P2p> p2p_;
  const std::shared_ptr<Control> control_;
  const EngineOptions options_;
  const LogSink log_;
  const ForkGuard fork_guard_;
  const std::unique_ptr<FlightRecorder> recorder_;

  std::mutex mu_;
  std::condition_variable cv_;        // followers: an operation has ended, or the driver has left
  bool driving_ = false;
  int followers_ = 0;

  absl::Status status_;               // poison of the whole job
  bool leaving_ = false, all_left_ = false, closed_ = false;
  std::vector<PostedOp*> ops_;              // in flight
  int failing_ = 0;                   // of which waiting for release
  absl::Time release_deadline_ = absl::InfiniteFuture();
  bool severed_ = false;
  absl::Time link_deadline_ = absl::InfiniteFuture();
  std::map<int64_t, std::weak_ptr<Group>> groups_;       // by id
  std::map<int64_t, int64_t> closed_groups_;             // id -> operations it had made
  std::map<int64_t, absl::Status> failed_ids_;           // poison of groups that are not made here (yet)
  std::vector<int64_t> discard_;                         // numbers of poisoned groups
  int64_t next_number_ = 0;
  ScratchPool scratch_;
};

}  // namespace moe
#endif  // MOE_TRANSPORT_ENGINE_H_
