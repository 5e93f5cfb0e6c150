// Collective communication of one group of ranks. transport/ implements it: threads in one process, UCX, NCCL.
//
// Contract
//  * A group is a handle with its own communicator: nothing is global, nothing is per device. All members call the
//    same operations in the same order; each operation has the group's next sequence number.
//  * Post* starts an operation and returns at once; the buffers belong to the operation until Test returns true or
//    Wait returns. Several operations may be in flight. Blocking forms are Post + Wait.
//  * Buffers are host memory here. Zero-sized blocks, whole empty rows and columns, and groups of one are legal.
//  * Reductions are done in rank order 0, 1, ... n-1 of the group, in the element type: the same bits on every rank,
//    from run to run, and on every transport. Send and receive buffers must not overlap unless an operation says so.
//  * Errors: INVALID_ARGUMENT on *all* members when they disagree (counts, kind, dtype), naming ranks and both
//    values; UNAVAILABLE when a member died; DEADLINE_EXCEEDED with the ranks that are missing; CANCELLED / the given
//    status after Abort. After the first error the communicator is poisoned: every later call returns that status.
//  * One thread at a time uses a communicator, except Abort, which any thread may call at any time.
#ifndef MOE_CORE_COMM_COMMUNICATOR_H_
#define MOE_CORE_COMM_COMMUNICATOR_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/base/dtype.h"
#include "core/base/status.h"

namespace moe {

enum class ReduceOp { kSum, kMax, kMin };

// One operation in flight. Destroying an unfinished one waits for it (or for the communicator's poisoning).
class Work {
 public:
  virtual ~Work() = default;
  // Makes progress; true when done, or the error.
  virtual absl::StatusOr<bool> Test() = 0;
  virtual absl::Status Wait() = 0;
};
using WorkPtr = std::unique_ptr<Work>;

// Blocks of an all-to-all-v, in bytes. Member j's block starts at send + send_offsets[j] and is send_bytes[j] long.
struct AllToAllV {
  const void* send = nullptr;
  absl::Span<const int64_t> send_bytes, send_offsets;
  void* recv = nullptr;
  absl::Span<const int64_t> recv_bytes, recv_offsets;
  // True when all members have already agreed on the counts (a dispatch plan): no header is exchanged then.
  // False: the counts of every pair are compared first; a mismatch is INVALID_ARGUMENT on all members, naming the
  // pair and both counts.
  bool counts_agreed = false;
};

// What an operation is for, as members must agree on it: "layers.3.moe dispatch", cut to what fits.
struct OpLabel { char text[24] = {}; };

class Communicator {
 public:
  virtual ~Communicator() = default;

  // Where in the model the coming operations are ("layers.3.moe"; "": nowhere) and what the next one is for ("dispatch"). The flight
  // recorder shows it, and members whose operations are for different things disagree.
  void At(absl::string_view place) { place_size_ = Put(place, 0, place_); }
  Communicator* For(absl::string_view what) {
    what_size_ = Put(what, 0, what_);
    return this;
  }

  virtual int rank() const = 0;                            // of this member in the group, 0 .. size-1
  virtual int size() const = 0;
  virtual int64_t id() const = 0;                          // same number on all members
  virtual int64_t epoch() const = 0;
  virtual absl::Span<const int64_t> members() const = 0;   // global ranks, ascending by group rank

  virtual absl::StatusOr<WorkPtr> PostAllToAllV(const AllToAllV& args) = 0;
  virtual absl::StatusOr<WorkPtr> PostAllReduce(void* inout, int64_t count, DType dtype, ReduceOp op) = 0;    // in place
  // recv holds size() blocks of `bytes`, block i from member i. send may be recv's own block.
  virtual absl::StatusOr<WorkPtr> PostAllGather(const void* send, int64_t bytes, void* recv) = 0;
  // send holds size() blocks of `count` elements; recv gets the reduced block rank().
  virtual absl::StatusOr<WorkPtr> PostReduceScatter(const void* send, void* recv, int64_t count, DType dtype, ReduceOp op) = 0;
  virtual absl::StatusOr<WorkPtr> PostBroadcast(void* inout, int64_t bytes, int root) = 0;
  // Point to point inside the group, matched by (pair, tag) in posting order. A shorter or longer message than
  // expected is INVALID_ARGUMENT naming both sizes.
  virtual absl::StatusOr<WorkPtr> PostSend(const void* data, int64_t bytes, int to, uint32_t tag) = 0;
  virtual absl::StatusOr<WorkPtr> PostRecv(void* data, int64_t bytes, int from, uint32_t tag) = 0;
  virtual absl::StatusOr<WorkPtr> PostBarrier() = 0;

  // Poisons the communicator: every pending and later operation on this member returns `reason`. Idempotent.
  virtual void Abort(const absl::Status& reason) = 0;

 protected:
  // Of the operation that is posted now; the next one has the place alone.
  OpLabel TakeLabel() {
    OpLabel label;
    size_t at = Put({place_, place_size_}, 0, label.text);
    if (what_size_ > 0 && at > 0) at = Put(" ", at, label.text);
    Put({what_, what_size_}, at, label.text);
    what_size_ = 0;
    return label;
  }

 private:
  static constexpr size_t kRoom = sizeof(OpLabel::text) - 1;
  static size_t Put(absl::string_view from, size_t at, char* to) {
    const size_t n = std::min(from.size(), kRoom - at);
    if (n > 0) std::memcpy(to + at, from.data(), n);
    return at + n;
  }
  char place_[kRoom], what_[kRoom];
  size_t place_size_ = 0, what_size_ = 0;
};

// Blocking forms.
inline absl::Status Finish(absl::StatusOr<WorkPtr> w) { return w.ok() ? (*w)->Wait() : w.status(); }
inline absl::Status RunAllToAllV(Communicator* c, const AllToAllV& a) { return Finish(c->PostAllToAllV(a)); }
inline absl::Status AllReduce(Communicator* c, void* inout, int64_t n, DType d, ReduceOp op = ReduceOp::kSum) { return Finish(c->PostAllReduce(inout, n, d, op)); }
inline absl::Status AllGather(Communicator* c, const void* send, int64_t bytes, void* recv) { return Finish(c->PostAllGather(send, bytes, recv)); }
inline absl::Status ReduceScatter(Communicator* c, const void* send, void* recv, int64_t n, DType d, ReduceOp op = ReduceOp::kSum) { return Finish(c->PostReduceScatter(send, recv, n, d, op)); }
inline absl::Status Broadcast(Communicator* c, void* inout, int64_t bytes, int root) { return Finish(c->PostBroadcast(inout, bytes, root)); }
inline absl::Status Send(Communicator* c, const void* d, int64_t bytes, int to, uint32_t tag = 0) { return Finish(c->PostSend(d, bytes, to, tag)); }
inline absl::Status Recv(Communicator* c, void* d, int64_t bytes, int from, uint32_t tag = 0) { return Finish(c->PostRecv(d, bytes, from, tag)); }
inline absl::Status Barrier(Communicator* c) { return Finish(c->PostBarrier()); }

// The ranks of a job as one member sees them: makes the communicators of its groups.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string name() const = 0;     // "inproc", "ucx"
  virtual int64_t rank() const = 0;         // global
  virtual int64_t world_size() const = 0;
  // Collective over `members` (global ranks, ascending, containing this rank). `id` is the same number on all members
  // and unique in the job. Fails with DEADLINE_EXCEEDED naming the missing ranks.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> CreateGroup(int64_t id, absl::Span<const int64_t> members) = 0;
  // One line per peer: how it is reached ("rank 1: posix+cma (shared memory)", "rank 2: tcp lo").
  virtual std::vector<std::string> DescribePeers() = 0;
  // Poisons every communicator of this process and tells the other ranks (best effort): they get `reason` too.
  virtual void Abort(const absl::Status& reason) = 0;
  // Leaves the job in good order: waits until all ranks have called it (peers still get their data), or until the
  // deadline. Called once, before destruction; without it destruction counts as an abnormal end.
  virtual absl::Status Shutdown() = 0;
};

}  // namespace moe
#endif  // MOE_CORE_COMM_COMMUNICATOR_H_
