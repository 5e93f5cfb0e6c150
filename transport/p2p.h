// Point-to-point messages between the ranks of a job: all that a transport has to bring. The collectives, groups,
// waiting and the handling of failures are written once above it, so every transport gives the same bits.
//
// One thread at a time calls it (the engine holds a lock), except Block and Wake.
#ifndef MOE_TRANSPORT_P2P_H_
#define MOE_TRANSPORT_P2P_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "core/base/status.h"

namespace moe {

struct P2pRequest;

// Who is told when a request ends (an operation).
class P2pOwner {
 public:
  virtual void OnDone(P2pRequest* request) = 0;

 protected:
  ~P2pOwner() = default;
};

// One message in flight. It and its buffer stay where they are until it is done.
struct P2pRequest {
  enum class State : uint8_t { kIdle, kPending, kDone };
  static constexpr int64_t kLonger = -1;

  State state = State::kIdle;
  bool is_send = false;
  int64_t peer = -1;
  uint64_t tag = 0;
  void* data = nullptr;
  int64_t capacity = 0;       // bytes to send, or room to receive
  int64_t bytes = 0;          // after a receive: the length that was sent; kLonger: more than there was room for
  absl::Status status;        // not OK: cancelled, or the link broke
  void* handle = nullptr;     // the transport's own, both
  void* context = nullptr;
  P2pOwner* owner = nullptr;

  void Begin(bool send, int64_t peer_rank, uint64_t message_tag, void* buffer, int64_t size) {
    state = State::kPending;
    is_send = send;
    peer = peer_rank;
    tag = message_tag;
    data = buffer;
    capacity = size;
    bytes = 0;
    status = absl::OkStatus();
    handle = nullptr;
  }
  void End(absl::Status result, int64_t length) {
    state = State::kDone;
    status = std::move(result);
    bytes = length;
    owner->OnDone(this);
  }
};

class P2p {
 public:
  virtual ~P2p() = default;
  virtual std::string name() const = 0;
  virtual int64_t rank() const = 0;
  virtual int64_t world_size() const = 0;

  // Start a message that `request` describes (Begin was called). May end it at once. Messages of one pair with equal
  // tags are matched in order; a receive longer or shorter than its message ends OK and tells the length. Never to
  // oneself.
  virtual void Isend(P2pRequest* request) = 0;
  virtual void Irecv(P2pRequest* request) = 0;
  // True when anything happened.
  virtual bool Progress() = 0;

  // Asks for an early end; the request ends in this call or in a later Progress. What cannot be withdrawn (a send
  // that the peer may be reading) ends when the peer has taken it, or after Sever.
  virtual void Cancel(P2pRequest* request) = 0;
  // Takes messages that match and throws them away, so that their senders get their buffers back.
  virtual void Discard(uint64_t tag, uint64_t mask) = 0;
  // Cuts the links to all peers: every pending request ends soon. For a failed job.
  virtual void Sever() = 0;
  // After it nothing here touches a buffer again, at any price; pending requests are forgotten without OnDone.
  virtual void Abandon() = 0;
  // The error of a link that broke on its own, or OK. The control connection usually knows the cause a moment later.
  virtual absl::Status link_status() const = 0;

  // Sleeping: PrepareBlock (with the lock) is false when there is something to do; after true, Block (without the
  // lock) returns when a message comes, Wake was called after PrepareBlock, or the time is over.
  virtual bool PrepareBlock() = 0;
  virtual void Block(absl::Duration timeout) = 0;
  virtual void Wake() = 0;  // any thread

  // One line per peer, without "rank N: "; empty for this rank. A lane that is slower than it should be starts its
  // explanation with "WARNING".
  virtual std::vector<std::string> DescribeLanes() const = 0;
};

}  // namespace moe
#endif  // MOE_TRANSPORT_P2P_H_
