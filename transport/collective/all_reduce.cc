// Small: everybody's data with the opening, summed locally. Large: pairwise reduce-scatter, then all-gather. Each element is
// summed in rank order in both (Rabenseifner's halving would not: its order depends on the number of ranks), so the bits are equal.
#include <vector>

#include "transport/collective/collective.h"
#include "transport/collective/exchange.h"
#include "transport/collective/rank_order.h"

namespace moe {
namespace {

class AllReduceOp final : public ExchangeOp {
 public:
  AllReduceOp(GroupPtr group, void* inout, int64_t count, DType dtype, ReduceOp op)
      : ExchangeOp(group, TransportOpKind::kAllReduce), inout_(static_cast<char*>(inout)), count_(count), dtype_(dtype), op_(op),
        small_(count * SizeOf(dtype) <= kOpeningInline) {
    mutable_descriptor()->dtype = static_cast<uint8_t>(dtype);
    mutable_descriptor()->reduce = static_cast<uint8_t>(op);
    mutable_descriptor()->count = count;
  }

  absl::Status Start() override {
    const int64_t bytes = small_ ? count_ * SizeOf(dtype_) : 0;
    PostOpenings(bytes, /*same_for_all=*/true, [&](int, char* payload) { if (bytes > 0) std::memcpy(payload, inout_, bytes); });
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Advance() override {
    if (stage_ == Stage::kOpen) {
      if (outstanding() > 0) return false;
      MOE_RETURN_IF_ERROR(CheckOpenings());
      if (small_) {
        ReduceInRankOrder(inout_, size(), [&](int i) { return payload(i); }, count_, dtype_, op_);
        return true;
      }
      stage_ = Stage::kReduceScatter;
      block_bytes_ = BlockBytes(rank());
      staging_ = Scratch(size() * block_bytes_);
      BeginExchange(1);
    }
    if (stage_ == Stage::kReduceScatter) {
      MOE_ASSIGN_OR_RETURN(const bool done, PumpExchange());
      if (!done) return false;
      char* mine = inout_ + BlockBegin(rank());
      ReduceInRankOrder(mine, size(), [&](int i) -> const void* { return i == rank() ? mine : staging_ + i * block_bytes_; },
                        block_bytes_ / SizeOf(dtype_), dtype_, op_);
      stage_ = Stage::kAllGather;
      BeginExchange(2);
    }
    return PumpExchange();
  }

 private:
  enum class Stage { kOpen, kReduceScatter, kAllGather };

  int64_t BlockBegin(int b) const {
    const int64_t n = size(), quotient = count_ / n, rest = count_ % n;  // count * b could overflow
    return (quotient * b + std::min<int64_t>(b, rest)) * SizeOf(dtype_);
  }
  int64_t BlockBytes(int b) const { return BlockBegin(b + 1) - BlockBegin(b); }

  Block BlockOf(int peer) const override {
    char* mine = inout_ + BlockBegin(rank());
    char* theirs = inout_ + BlockBegin(peer);
    if (stage_ == Stage::kReduceScatter) return {theirs, BlockBytes(peer), staging_ + peer * block_bytes_, block_bytes_};
    return {mine, block_bytes_, theirs, BlockBytes(peer)};
  }

  char* const inout_;
  const int64_t count_;
  const DType dtype_;
  const ReduceOp op_;
  const bool small_;
  Stage stage_ = Stage::kOpen;
  int64_t block_bytes_ = 0;
  char* staging_ = nullptr;
};

}  // namespace

std::unique_ptr<TransportOp> MakeAllReduce(GroupPtr group, void* inout, int64_t count, DType dtype, ReduceOp op) {
  return std::make_unique<AllReduceOp>(std::move(group), inout, count, dtype, op);
}

}  // namespace moe
