// Binomial tree from the root. The opening goes down the tree ahead of the data and carries small data itself.
#include <cstring>

#include "transport/collective/collective.h"
#include "transport/collective/exchange.h"

namespace moe {
namespace {

class BroadcastOp final : public TransportOp {
 public:
  BroadcastOp(GroupPtr group, void* inout, int64_t bytes, int root)
      : TransportOp(group, TransportOpKind::kBroadcast, kRequests), inout_(inout), bytes_(bytes), root_(root), small_(bytes <= kOpeningInline) {
    mutable_descriptor()->count = bytes;
    mutable_descriptor()->root = root;
  }

  absl::Status Start() override {
    opening_ = Scratch(kOpeningHeader + kOpeningInline);
    if (rank() == root_) {
      Forward();
    } else {
      Recv(0, Parent(), 0, opening_, kOpeningHeader + kOpeningInline);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Advance() override {
    if (forwarded_) return outstanding() == 0;
    if (outstanding() > 0) return false;
    if (!opened_) {
      if (request(0).bytes < kOpeningHeader) return CheckLength(0, Parent(), kOpeningHeader);
      Descriptor theirs;
      std::memcpy(&theirs, opening_, sizeof(theirs));
      if (!Agree(theirs, descriptor())) return Disagreement(group().id, group().epoch, theirs, descriptor());
      MOE_RETURN_IF_ERROR(CheckLength(0, Parent(), kOpeningHeader + (small_ ? bytes_ : 0)));
      opened_ = true;
      if (small_) {
        if (bytes_ > 0) std::memcpy(inout_, opening_ + kOpeningHeader, bytes_);
      } else {
        Recv(1, Parent(), 1, inout_, bytes_);
        if (outstanding() > 0) return false;
      }
    }
    if (!small_) MOE_RETURN_IF_ERROR(CheckLength(1, Parent(), bytes_));
    Forward();
    return outstanding() == 0;
  }

 private:
  static constexpr int kMaxChildren = 16;  // kMaxWorldSize is 2^16
  static constexpr int kRequests = 2 + 2 * kMaxChildren;

  // Ranks counted from the root; a node's parent lacks its lowest set bit.
  int Relative() const { return (rank() - root_ + size()) % size(); }
  int Parent() const { return ((Relative() & (Relative() - 1)) + root_) % size(); }

  void Forward() {
    forwarded_ = true;
    std::memset(opening_, 0, kOpeningHeader);
    std::memcpy(opening_, &descriptor(), sizeof(Descriptor));
    if (small_ && bytes_ > 0) std::memcpy(opening_ + kOpeningHeader, inout_, bytes_);
    const int me = Relative();
    int bit = 1;
    while (bit < size() && (me & bit) == 0) bit <<= 1;
    int next = 2;
    for (bit >>= 1; bit > 0; bit >>= 1) {  // the largest subtree first
      if (me + bit >= size()) continue;
      const int child = (me + bit + root_) % size();
      Send(next++, child, 0, opening_, kOpeningHeader + (small_ ? bytes_ : 0));
      if (!small_) Send(next++, child, 1, inout_, bytes_);
    }
  }

  void* const inout_;
  const int64_t bytes_;
  const int root_;
  const bool small_;
  char* opening_ = nullptr;
  bool opened_ = false, forwarded_ = false;
};

}  // namespace

std::unique_ptr<TransportOp> MakeBroadcast(GroupPtr group, void* inout, int64_t bytes, int root) {
  return std::make_unique<BroadcastOp>(std::move(group), inout, bytes, root);
}

}  // namespace moe
