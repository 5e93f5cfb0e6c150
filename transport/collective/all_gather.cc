// Small blocks travel with the opening; large ones go from their place to their place.
#include "transport/collective/collective.h"
#include "transport/collective/exchange.h"

#include <cstring>

namespace moe {
namespace {

class AllGatherOp final : public ExchangeOp {
 public:
  AllGatherOp(GroupPtr group, const void* send, int64_t bytes, void* recv)
      : ExchangeOp(group, TransportOpKind::kAllGather), send_(send), bytes_(bytes), recv_(static_cast<char*>(recv)), small_(bytes <= kOpeningInline) {
    mutable_descriptor()->count = bytes;
  }

  absl::Status Start() override {
    char* mine = recv_ + rank() * bytes_;
    if (bytes_ > 0 && send_ != mine) std::memcpy(mine, send_, bytes_);
    PostOpenings(small_ ? bytes_ : 0, /*same_for_all=*/true, [&](int, char* payload) { if (small_ && bytes_ > 0) std::memcpy(payload, mine, bytes_); });
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Advance() override {
    if (!opened_) {
      if (outstanding() > 0) return false;
      MOE_RETURN_IF_ERROR(CheckOpenings());
      if (small_) {
        for (int i = 0; i < size(); ++i) {
          if (bytes_ > 0 && i != rank()) std::memcpy(recv_ + i * bytes_, payload(i), bytes_);
        }
        return true;
      }
      opened_ = true;
      BeginExchange(1);
    }
    return PumpExchange();
  }

 private:
  Block BlockOf(int peer) const override { return {recv_ + rank() * bytes_, bytes_, recv_ + peer * bytes_, bytes_}; }

  const void* const send_;
  const int64_t bytes_;
  char* const recv_;
  const bool small_;
  bool opened_ = false;
};

}  // namespace

std::unique_ptr<TransportOp> MakeAllGather(GroupPtr group, const void* send, int64_t bytes, void* recv) {
  return std::make_unique<AllGatherOp>(std::move(group), send, bytes, recv);
}

}  // namespace moe
