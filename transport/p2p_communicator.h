// The Communicator over any P2p: checks arguments and posts operations.
#ifndef MOE_TRANSPORT_P2P_COMMUNICATOR_H_
#define MOE_TRANSPORT_P2P_COMMUNICATOR_H_

#include <memory>

#include "core/comm/communicator.h"
#include "transport/engine.h"

namespace moe {

class P2pCommunicator final : public Communicator {
 public:
  P2pCommunicator(std::shared_ptr<Engine> engine, std::shared_ptr<Group> group) : engine_(std::move(engine)), group_(std::move(group)) {}
  ~P2pCommunicator() override { engine_->Unregister(*group_); }

  int rank() const override { return group_->rank; }
  int size() const override { return group_->size(); }
  int64_t id() const override { return group_->id; }
  int64_t epoch() const override { return group_->epoch; }
  absl::Span<const int64_t> members() const override { return group_->members; }

  absl::StatusOr<WorkPtr> PostAllToAllV(const AllToAllV& args) override;
  absl::StatusOr<WorkPtr> PostAllReduce(void* inout, int64_t count, DType dtype, ReduceOp op) override;
  absl::StatusOr<WorkPtr> PostAllGather(const void* send, int64_t bytes, void* recv) override;
  absl::StatusOr<WorkPtr> PostReduceScatter(const void* send, void* recv, int64_t count, DType dtype, ReduceOp op) override;
  absl::StatusOr<WorkPtr> PostBroadcast(void* inout, int64_t bytes, int root) override;
  absl::StatusOr<WorkPtr> PostSend(const void* data, int64_t bytes, int to, uint32_t tag) override;
  absl::StatusOr<WorkPtr> PostRecv(void* data, int64_t bytes, int from, uint32_t tag) override;
  absl::StatusOr<WorkPtr> PostBarrier() override;
  // Tells the other members too: they could never finish an operation with this one again.
  void Abort(const absl::Status& reason) override { engine_->AbortGroup(*group_, reason); }

 private:
  absl::StatusOr<WorkPtr> PostChecked(const absl::Status& arguments, MessageKind kind, int64_t bytes, int64_t peer, absl::FunctionRef<std::unique_ptr<PostedOp>()> make);
  absl::Status CheckBuffer(const char* name, const void* data, int64_t bytes) const;
  absl::Status CheckCounts(const AllToAllV& args) const;
  absl::Status CheckPeer(const char* name, int peer, uint32_t tag) const;

  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<Group> group_;
};

}  // namespace moe
#endif  // MOE_TRANSPORT_P2P_COMMUNICATOR_H_
