// What a rank says of one collective operation, so that members that disagree find out instead of hanging or mixing
// up data. It opens every collective (opening.h), and a rank that waits too long sends it on the control connection.
#ifndef MOE_TRANSPORT_DESCRIPTOR_H_
#define MOE_TRANSPORT_DESCRIPTOR_H_

#include <cstdint>
#include <string>

#include "core/base/dtype.h"
#include "core/comm/communicator.h"

namespace moe {

enum class MessageKind : uint8_t { kNone, kAllToAllV, kAllReduce, kAllGather, kReduceScatter, kBroadcast, kBarrier, kSend, kRecv };
const char* Name(MessageKind kind);
const char* Name(ReduceOp op);

// Travels as bytes between ranks of one build (the rendezvous has compared versions and byte order).
struct Descriptor {
  uint32_t magic = 0x4d6f4531;
  MessageKind kind = MessageKind::kNone;
  uint8_t dtype = 0;           // DType, 0: bytes
  uint8_t reduce = 0;          // ReduceOp
  uint8_t counts_agreed = 0;   // all-to-all-v
  int32_t root = -1;
  int32_t source = -1;         // global rank that says it
  int64_t sequence = 0;
  int64_t count = 0;           // elements or bytes; 0 for all-to-all-v, whose counts are compared pair by pair
  uint64_t history = 0;        // of the group's operations before this one, see Extend
  OpLabel label;               // what it is for
};
static_assert(sizeof(Descriptor) == 64, "no padding: it is sent");

// The same operation at the same place of the same history.
bool Agree(const Descriptor& a, const Descriptor& b);
// "all_reduce(count 10, float32, sum) for layers.3.moe dispatch"
std::string ToString(const Descriptor& d);
// The fingerprint after `d`.
uint64_t Extend(uint64_t history, const Descriptor& d);
// INVALID_ARGUMENT that names both ranks and both operations; the same text whoever writes it.
absl::Status Disagreement(int64_t group, int64_t epoch, const Descriptor& a, const Descriptor& b);

}  // namespace moe
#endif  // MOE_TRANSPORT_DESCRIPTOR_H_
