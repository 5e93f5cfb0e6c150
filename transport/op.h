// An operation in flight as a state machine: Start posts its first messages, Advance is called when messages of it have
// ended and posts the next ones. No thread of its own; whoever waits for any operation of the rank drives all of them,
// so operations that wait for each other across ranks and groups cannot lock up.
#ifndef MOE_TRANSPORT_OP_H_
#define MOE_TRANSPORT_OP_H_

#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "core/base/status.h"
#include "transport/descriptor.h"
#include "transport/flight/recorder.h"
#include "transport/group.h"
#include "transport/p2p.h"
#include "transport/scratch.h"

namespace moe {

class PostedOp : public P2pOwner {
 public:
  PostedOp(std::shared_ptr<Group> group, MessageKind kind, int num_requests) : group_(std::move(group)), requests_(num_requests) {
    descriptor_.kind = kind;
    for (P2pRequest& r : requests_) r.owner = this;
  }
  virtual ~PostedOp() = default;
  PostedOp(const PostedOp&) = delete;
  PostedOp& operator=(const PostedOp&) = delete;

  // Both under the engine's lock. An error poisons the group on all members.
  virtual absl::Status Start() = 0;
  // Called after Start and whenever a message has ended; true when finished. Never sees a broken message.
  virtual absl::StatusOr<bool> Advance() = 0;

  const Descriptor& descriptor() const { return descriptor_; }
  void set_label(const OpLabel& label) { descriptor_.label = label; }
  // For the flight recorder: bytes that go to others, and the global rank of a single peer.
  void set_traffic(int64_t bytes, int64_t peer) {
    record_.bytes = bytes;
    record_.peer = static_cast<int32_t>(peer);
  }

 protected:
  const Group& group() const { return *group_; }
  int rank() const { return group_->rank; }
  int size() const { return group_->size(); }
  Descriptor* mutable_descriptor() { return &descriptor_; }

  // Messages of this collective's `phase` (0..255) with a member of the group.
  void Send(int request, int to, int phase, const void* data, int64_t bytes) {
    Isend(request, group_->members[to], CollectiveTag(group_->members[rank()], phase), data, bytes);
  }
  void Recv(int request, int from, int phase, void* data, int64_t bytes) {
    Irecv(request, group_->members[from], CollectiveTag(group_->members[from], phase), data, bytes);
  }
  void Isend(int request, int64_t global_rank, uint64_t tag, const void* data, int64_t bytes);
  void Irecv(int request, int64_t global_rank, uint64_t tag, void* data, int64_t bytes);
  const P2pRequest& request(int i) const { return requests_[i]; }
  bool done(int i) const { return requests_[i].state == P2pRequest::State::kDone; }
  // Messages posted and not ended.
  int outstanding() const { return outstanding_; }
  // Memory until the end of the operation.
  char* Scratch(int64_t bytes);
  // INVALID_ARGUMENT unless receive `i` got `expected` bytes.
  absl::Status CheckLength(int i, int from, int64_t expected) const;

 private:
  friend class Engine;
  uint64_t CollectiveTag(int64_t sender, int phase) const;
  void OnDone(P2pRequest* request) override;

  std::shared_ptr<Group> group_;
  Descriptor descriptor_;
  std::vector<P2pRequest> requests_;
  std::vector<ScratchPool::Buffer> scratch_;
  int outstanding_ = 0;

  // The engine's.
  P2p* p2p_ = nullptr;
  ScratchPool* pool_ = nullptr;
  FlightRecorder* recorder_ = nullptr;
  flight::Record record_;
  int64_t started_ = 0;     // when its first message ended
  bool dirty_ = false;      // a message has ended since the last Advance
  bool broken_ = false;     // a message ended with an error
  bool failing_ = false;    // status_ is the error; waits for its messages to be released
  bool done_ = false;
  bool reported_ = false;   // a kStall notice was sent
  absl::Status status_;
  absl::Time waiting_since_ = absl::InfiniteFuture();  // set when somebody begins to sleep over it
};

}  // namespace moe
#endif  // MOE_TRANSPORT_OP_H_
