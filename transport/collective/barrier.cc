// Dissemination barrier (Hensgen, Finkel, Manber 1988): in round k to rank + 2^k, from rank - 2^k. Each message is an opening.
#include <cstring>

#include "transport/collective/collective.h"
#include "transport/collective/exchange.h"

namespace moe {
namespace {

class BarrierOp final : public TransportOp {
 public:
  explicit BarrierOp(GroupPtr group) : TransportOp(group, TransportOpKind::kBarrier, 2 * kMaxRounds) {}

  absl::Status Start() override {
    message_ = Scratch(kOpeningHeader);
    received_ = Scratch(kOpeningHeader + kOpeningInline);
    std::memset(message_, 0, kOpeningHeader);
    std::memcpy(message_, &descriptor(), sizeof(Descriptor));
    if (size() > 1) Round();
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Advance() override {
    while (Distance() < size()) {
      if (!done(kMaxRounds + round_)) return false;
      const int from = From();
      if (request(kMaxRounds + round_).bytes < kOpeningHeader) return CheckLength(kMaxRounds + round_, from, kOpeningHeader);
      Descriptor theirs;
      std::memcpy(&theirs, received_, sizeof(theirs));
      if (!Agree(theirs, descriptor())) return Disagreement(group().id, group().epoch, theirs, descriptor());
      ++round_;
      if (Distance() < size()) Round();
    }
    return outstanding() == 0;
  }

 private:
  static constexpr int kMaxRounds = 16;

  int Distance() const { return 1 << round_; }
  int From() const { return (rank() - Distance() + size()) % size(); }
  void Round() {
    Recv(kMaxRounds + round_, From(), round_, received_, kOpeningHeader + kOpeningInline);
    Send(round_, (rank() + Distance()) % size(), round_, message_, kOpeningHeader);
  }

  int round_ = 0;
  char* message_ = nullptr;
  char* received_ = nullptr;
};

}  // namespace

std::unique_ptr<TransportOp> MakeBarrier(GroupPtr group) { return std::make_unique<BarrierOp>(std::move(group)); }

}  // namespace moe
