// One message between two members, matched by (pair, tag) in posting order. It has no opening: the received length tells a
// disagreement.
#include "transport/collective/collective.h"
#include "transport/op.h"
#include "transport/tag.h"

namespace moe {
namespace {

class SendOp final : public TransportOp {
 public:
  SendOp(GroupPtr group, const void* data, int64_t bytes, int to, uint32_t tag)
      : TransportOp(group, TransportOpKind::kSend, 1), data_(data), bytes_(bytes), to_(to), tag_(tag) {
    mutable_descriptor()->count = bytes;
  }
  absl::Status Start() override {
    Isend(0, group().members[to_], UserTag(group().epoch, group().number, group().members[rank()], tag_), data_, bytes_);
    return absl::OkStatus();
  }
  absl::StatusOr<bool> Advance() override { return outstanding() == 0; }

 private:
  const void* const data_;
  const int64_t bytes_;
  const int to_;
  const uint32_t tag_;
};

class RecvOp final : public TransportOp {
 public:
  RecvOp(GroupPtr group, void* data, int64_t bytes, int from, uint32_t tag)
      : TransportOp(group, TransportOpKind::kRecv, 1), data_(data), bytes_(bytes), from_(from), tag_(tag) {
    mutable_descriptor()->count = bytes;
    mutable_descriptor()->root = static_cast<int32_t>(tag);  // for error messages
  }
  absl::Status Start() override {
    Irecv(0, group().members[from_], UserTag(group().epoch, group().number, group().members[from_], tag_), data_, bytes_);
    return absl::OkStatus();
  }
  absl::StatusOr<bool> Advance() override {
    if (outstanding() > 0) return false;
    MOE_RETURN_IF_ERROR(CheckLength(0, from_, bytes_));
    return true;
  }

 private:
  void* const data_;
  const int64_t bytes_;
  const int from_;
  const uint32_t tag_;
};

}  // namespace

std::unique_ptr<TransportOp> MakeSend(GroupPtr group, const void* data, int64_t bytes, int to, uint32_t tag) {
  return std::make_unique<SendOp>(std::move(group), data, bytes, to, tag);
}
std::unique_ptr<TransportOp> MakeRecv(GroupPtr group, void* data, int64_t bytes, int from, uint32_t tag) {
  return std::make_unique<RecvOp>(std::move(group), data, bytes, from, tag);
}

}  // namespace moe
