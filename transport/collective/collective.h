// The operations, one algorithm per file. Arguments have been validated (p2p_communicator.cc).
#ifndef MOE_TRANSPORT_COLLECTIVE_COLLECTIVE_H_
#define MOE_TRANSPORT_COLLECTIVE_COLLECTIVE_H_

#include <memory>

#include "core/comm/communicator.h"
#include "transport/op.h"

namespace moe {

using GroupPtr = std::shared_ptr<Group>;

std::unique_ptr<TransportOp> MakeAllToAllV(GroupPtr group, const AllToAllV& args);
std::unique_ptr<TransportOp> MakeAllReduce(GroupPtr group, void* inout, int64_t count, DType dtype, ReduceOp op);
std::unique_ptr<TransportOp> MakeAllGather(GroupPtr group, const void* send, int64_t bytes, void* recv);
std::unique_ptr<TransportOp> MakeReduceScatter(GroupPtr group, const void* send, void* recv, int64_t count, DType dtype, ReduceOp op);
std::unique_ptr<TransportOp> MakeBroadcast(GroupPtr group, void* inout, int64_t bytes, int root);
std::unique_ptr<TransportOp> MakeBarrier(GroupPtr group);
std::unique_ptr<TransportOp> MakeSend(GroupPtr group, const void* data, int64_t bytes, int to, uint32_t tag);
std::unique_ptr<TransportOp> MakeRecv(GroupPtr group, void* data, int64_t bytes, int from, uint32_t tag);

}  // namespace moe
#endif  // MOE_TRANSPORT_COLLECTIVE_COLLECTIVE_H_
