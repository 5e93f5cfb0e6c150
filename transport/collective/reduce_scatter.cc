// Pairwise: each member gets its block from all others and sums them in rank order. Small blocks travel with the opening.
#include "transport/collective/collective.h"
#include "transport/collective/exchange.h"
#include "transport/collective/rank_order.h"

namespace moe {
namespace {

class ReduceScatterOp final : public ExchangeOp {
 public:
  ReduceScatterOp(GroupPtr group, const void* send, void* recv, int64_t count, DType dtype, ReduceOp op)
      : ExchangeOp(group, TransportOpKind::kReduceScatter), send_(static_cast<const char*>(send)), recv_(recv), count_(count),
        bytes_(count * SizeOf(dtype)), dtype_(dtype), op_(op), small_(bytes_ <= kOpeningInline) {
    mutable_descriptor()->dtype = static_cast<uint8_t>(dtype);
    mutable_descriptor()->reduce = static_cast<uint8_t>(op);
    mutable_descriptor()->count = count;
  }

  absl::Status Start() override {
    PostOpenings(small_ ? bytes_ : 0, /*same_for_all=*/!small_, [&](int to, char* payload) {
      if (small_ && bytes_ > 0) std::memcpy(payload, send_ + to * bytes_, bytes_);
    });
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Advance() override {
    if (!opened_) {
      if (outstanding() > 0) return false;
      MOE_RETURN_IF_ERROR(CheckOpenings());
      if (small_) {
        ReduceInRankOrder(recv_, size(), [&](int i) { return payload(i); }, count_, dtype_, op_);
        return true;
      }
      opened_ = true;
      staging_ = Scratch(size() * bytes_);
      BeginExchange(1);
    }
    MOE_ASSIGN_OR_RETURN(const bool done, PumpExchange());
    if (!done) return false;
    ReduceInRankOrder(recv_, size(), [&](int i) -> const void* { return i == rank() ? send_ + i * bytes_ : staging_ + i * bytes_; }, count_, dtype_, op_);
    return true;
  }

 private:
  Block BlockOf(int peer) const override { return {send_ + peer * bytes_, bytes_, staging_ + peer * bytes_, bytes_}; }

  const char* const send_;
  void* const recv_;
  const int64_t count_, bytes_;
  const DType dtype_;
  const ReduceOp op_;
  const bool small_;
  bool opened_ = false;
  char* staging_ = nullptr;
};

}  // namespace

std::unique_ptr<TransportOp> MakeReduceScatter(GroupPtr group, const void* send, void* recv, int64_t count, DType dtype, ReduceOp op) {
  return std::make_unique<ReduceScatterOp>(std::move(group), send, recv, count, dtype, op);
}

}  // namespace moe
