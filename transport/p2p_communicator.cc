#include "transport/p2p_communicator.h"

#include <limits>

#include "transport/collective/collective.h"
#include "transport/tag.h"

namespace moe {
namespace {

absl::Status CheckCount(int64_t count, DType dtype, int blocks) {
  if (Name(dtype)[0] == '?') return InvalidArgument("unknown dtype ", static_cast<int>(dtype));
  if (count < 0) return InvalidArgument("count is ", count, "; it must not be negative");
  if (count > std::numeric_limits<int64_t>::max() / SizeOf(dtype) / blocks) return InvalidArgument("count ", count, " is too large");
  return absl::OkStatus();
}

}  // namespace

// A wrong argument of one member is an error of the whole group: the others would wait for ever for this operation.
absl::StatusOr<WorkPtr> P2pCommunicator::PostChecked(const absl::Status& arguments, MessageKind kind, int64_t bytes, int64_t peer, absl::FunctionRef<std::unique_ptr<PostedOp>()> make) {
  const OpLabel label = TakeLabel();
  if (arguments.ok()) {
    std::unique_ptr<PostedOp> op = make();
    op->set_label(label);
    op->set_traffic(bytes, peer);
    return engine_->Post(std::move(op));
  }
  FailureInfo info;
  info.origin_rank = group_->members[group_->rank];
  info.failed_ranks = {info.origin_rank};
  info.group = group_->id;
  info.epoch = group_->epoch;
  const absl::Status status = WithFailureInfo(
      Annotate(arguments, absl::StrCat("group ", group_->id, ", ", Name(kind), " of rank ", info.origin_rank)), info);
  engine_->AbortGroup(*group_, status);
  return status;
}

absl::Status P2pCommunicator::CheckBuffer(const char* name, const void* data, int64_t bytes) const {
  if (bytes < 0) return InvalidArgument("bytes is ", bytes, "; it must not be negative");
  if (bytes > std::numeric_limits<int64_t>::max() / group_->size()) return InvalidArgument("bytes ", bytes, " is too large");
  if (data == nullptr && bytes > 0) return InvalidArgument(name, " is null with ", bytes, " bytes");
  return absl::OkStatus();
}

absl::Status P2pCommunicator::CheckPeer(const char* name, int peer, uint32_t tag) const {
  if (peer < 0 || peer >= size()) return InvalidArgument(name, " is ", peer, "; members of the group are 0 .. ", size() - 1);
  if (peer == rank()) return InvalidArgument(name, " is the member itself (", peer, "); copy the data instead");
  if (tag > kMaxUserTag) return InvalidArgument("tag is ", tag, "; the largest is ", kMaxUserTag);
  return absl::OkStatus();
}

absl::Status P2pCommunicator::CheckCounts(const AllToAllV& a) const {
  const size_t n = group_->members.size();
  if (a.send_bytes.size() != n || a.send_offsets.size() != n || a.recv_bytes.size() != n || a.recv_offsets.size() != n) {
    return InvalidArgument("send_bytes, send_offsets, recv_bytes, recv_offsets have ", a.send_bytes.size(), ", ", a.send_offsets.size(), ", ",
                           a.recv_bytes.size(), ", ", a.recv_offsets.size(), " entries; the group has ", n, " members");
  }
  for (size_t i = 0; i < n; ++i) {
    if (a.send_bytes[i] < 0 || a.recv_bytes[i] < 0 || a.send_offsets[i] < 0 || a.recv_offsets[i] < 0) {
      return InvalidArgument("send_bytes ", a.send_bytes[i], ", send_offsets ", a.send_offsets[i], ", recv_bytes ", a.recv_bytes[i], ", recv_offsets ",
                             a.recv_offsets[i], " for member ", i, "; they must not be negative");
    }
    if ((a.send == nullptr && a.send_bytes[i] > 0) || (a.recv == nullptr && a.recv_bytes[i] > 0)) {
      return InvalidArgument(a.send == nullptr && a.send_bytes[i] > 0 ? "send" : "recv", " is null, but there are bytes for member ", i);
    }
  }
  const size_t me = static_cast<size_t>(rank());
  if (a.send_bytes[me] != a.recv_bytes[me]) {
    return InvalidArgument("it sends ", a.send_bytes[me], " bytes to itself and expects ", a.recv_bytes[me], " bytes from itself");
  }
  return absl::OkStatus();
}

absl::StatusOr<WorkPtr> P2pCommunicator::PostAllToAllV(const AllToAllV& args) {
  const absl::Status s = CheckCounts(args);
  int64_t bytes = 0;
  for (size_t i = 0; s.ok() && i < args.send_bytes.size(); ++i) bytes += static_cast<int>(i) == rank() ? 0 : args.send_bytes[i];
  return PostChecked(s, MessageKind::kAllToAllV, bytes, -1, [&] { return MakeAllToAllV(group_, args); });
}

absl::StatusOr<WorkPtr> P2pCommunicator::PostAllReduce(void* inout, int64_t count, DType dtype, ReduceOp op) {
  absl::Status s = CheckCount(count, dtype, 1);
  if (s.ok()) s = CheckBuffer("inout", inout, count * SizeOf(dtype));
  return PostChecked(s, MessageKind::kAllReduce, s.ok() ? count * SizeOf(dtype) : 0, -1, [&] { return MakeAllReduce(group_, inout, count, dtype, op); });
}

absl::StatusOr<WorkPtr> P2pCommunicator::PostAllGather(const void* send, int64_t bytes, void* recv) {
  absl::Status s = CheckBuffer("send", send, bytes);
  if (s.ok()) s = CheckBuffer("recv", recv, bytes);
  return PostChecked(s, MessageKind::kAllGather, s.ok() ? bytes : 0, -1, [&] { return MakeAllGather(group_, send, bytes, recv); });
}

absl::StatusOr<WorkPtr> P2pCommunicator::PostReduceScatter(const void* send, void* recv, int64_t count, DType dtype, ReduceOp op) {
  absl::Status s = CheckCount(count, dtype, size());
  if (s.ok()) s = CheckBuffer("send", send, count * SizeOf(dtype));
  if (s.ok()) s = CheckBuffer("recv", recv, count * SizeOf(dtype));
  return PostChecked(s, MessageKind::kReduceScatter, s.ok() ? count * SizeOf(dtype) : 0, -1, [&] { return MakeReduceScatter(group_, send, recv, count, dtype, op); });
}

absl::StatusOr<WorkPtr> P2pCommunicator::PostBroadcast(void* inout, int64_t bytes, int root) {
  absl::Status s = CheckBuffer("inout", inout, bytes);
  if (s.ok() && (root < 0 || root >= size())) s = InvalidArgument("root is ", root, "; members of the group are 0 .. ", size() - 1);
  return PostChecked(s, MessageKind::kBroadcast, s.ok() ? (rank() == root ? bytes : 0) : 0, -1, [&] { return MakeBroadcast(group_, inout, bytes, root); });
}

absl::StatusOr<WorkPtr> P2pCommunicator::PostSend(const void* data, int64_t bytes, int to, uint32_t tag) {
  absl::Status s = CheckBuffer("data", data, bytes);
  if (s.ok()) s = CheckPeer("to", to, tag);
  return PostChecked(s, MessageKind::kSend, bytes, s.ok() ? group_->members[to] : -1, [&] { return MakeSend(group_, data, bytes, to, tag); });
}

absl::StatusOr<WorkPtr> P2pCommunicator::PostRecv(void* data, int64_t bytes, int from, uint32_t tag) {
  absl::Status s = CheckBuffer("data", data, bytes);
  if (s.ok()) s = CheckPeer("from", from, tag);
  return PostChecked(s, MessageKind::kRecv, 0, s.ok() ? group_->members[from] : -1, [&] { return MakeRecv(group_, data, bytes, from, tag); });
}

absl::StatusOr<WorkPtr> P2pCommunicator::PostBarrier() {
  return PostChecked(absl::OkStatus(), MessageKind::kBarrier, 0, -1, [&] { return MakeBarrier(group_); });
}

}  // namespace moe
