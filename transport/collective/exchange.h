// What most collectives are made of.
//
// Opening: each member first tells every other what it is about to do (Descriptor) and a payload (the counts, or
// the data itself when it is small). So every member has the same facts and comes to the same verdict, before any
// large message is under way.
//
// Exchange: a block to and from every other member, linear with rotated peers (at step k: to rank + k, from rank - k, so that
// nobody is everybody's target), a window of blocks in flight. Blocks of zero bytes are left out on both sides.
#ifndef MOE_TRANSPORT_COLLECTIVE_EXCHANGE_H_
#define MOE_TRANSPORT_COLLECTIVE_EXCHANGE_H_

#include <algorithm>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "core/base/status.h"
#include "transport/op.h"

namespace moe {

// The descriptor takes a cache line, so that a payload behind it is aligned.
constexpr int64_t kOpeningHeader = 64;
// Data up to this size travels with the opening.
constexpr int64_t kOpeningInline = 4096;

class ExchangeOp : public TransportOp {
 protected:
  ExchangeOp(std::shared_ptr<Group> group, TransportOpKind kind) : TransportOp(group, kind, 2 * group->size()) {}

  // `fill` writes the payload for one member; with `same_for_all` it is called once. The room for incoming openings is the
  // larger of kOpeningInline and this payload, so that another kind of operation is recognised.
  void PostOpenings(int64_t payload_bytes, bool same_for_all, absl::FunctionRef<void(int to, char* payload)> fill);
  // When nothing is outstanding: the verdict.
  absl::Status CheckOpenings() const;
  // Also of this rank.
  const char* payload(int from) const { return (from == rank() ? own_ : received_ + from * slot_) + kOpeningHeader; }

  struct Block {
    const void* send = nullptr;
    int64_t send_bytes = 0;
    void* recv = nullptr;
    int64_t recv_bytes = 0;
  };
  virtual Block BlockOf(int peer) const = 0;
  void BeginExchange(int phase) { phase_ = phase; sends_ = recvs_ = {1, 1}; }
  // True when all blocks have come and gone.
  absl::StatusOr<bool> PumpExchange();

 private:
  static constexpr int kWindow = 16;
  struct Range { int low = 1, high = 1; };  // steps [low, high) are in flight

  int64_t payload_bytes_ = 0, slot_ = 0;
  char* received_ = nullptr;
  char* own_ = nullptr;
  int phase_ = 1;
  Range sends_, recvs_;
};

}  // namespace moe
#endif  // MOE_TRANSPORT_COLLECTIVE_EXCHANGE_H_
