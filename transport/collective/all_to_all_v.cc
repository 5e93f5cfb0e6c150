// Windowed linear all-to-all-v. When the counts are not agreed, every member first tells every other its whole row of send
// counts and of expected receive counts: n^2 numbers on each, so that all members, also those that a mismatch does not touch, know
// it and leave together instead of waiting for a partner that has left.
#include <cstring>
#include <vector>

#include "transport/collective/collective.h"
#include "transport/collective/exchange.h"

namespace moe {
namespace {

class AllToAllVOp final : public ExchangeOp {
 public:
  AllToAllVOp(GroupPtr group, const AllToAllV& a)
      : ExchangeOp(group, TransportOpKind::kAllToAllV), send_(static_cast<const char*>(a.send)), recv_(static_cast<char*>(a.recv)), agreed_(a.counts_agreed),
        send_bytes_(a.send_bytes.begin(), a.send_bytes.end()), send_offsets_(a.send_offsets.begin(), a.send_offsets.end()),
        recv_bytes_(a.recv_bytes.begin(), a.recv_bytes.end()), recv_offsets_(a.recv_offsets.begin(), a.recv_offsets.end()) {
    mutable_descriptor()->counts_agreed = a.counts_agreed;
  }

  absl::Status Start() override {
    if (agreed_) {
      opened_ = true;
      BeginData();
      return absl::OkStatus();
    }
    const int64_t row = size() * static_cast<int64_t>(sizeof(int64_t));
    PostOpenings(2 * row, /*same_for_all=*/true, [&](int, char* payload) {
      std::memcpy(payload, send_bytes_.data(), row);
      std::memcpy(payload + row, recv_bytes_.data(), row);
    });
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Advance() override {
    if (!opened_) {
      if (outstanding() > 0) return false;
      MOE_RETURN_IF_ERROR(CheckOpenings());
      MOE_RETURN_IF_ERROR(CheckCounts());
      opened_ = true;
      BeginData();
    }
    return PumpExchange();
  }

 private:
  Block BlockOf(int peer) const override {
    return {send_ + send_offsets_[peer], send_bytes_[peer], recv_ + recv_offsets_[peer], recv_bytes_[peer]};
  }

  void BeginData() {
    const int me = rank();
    if (send_bytes_[me] > 0) std::memcpy(recv_ + recv_offsets_[me], send_ + send_offsets_[me], send_bytes_[me]);
    BeginExchange(1);
  }

  absl::Status CheckCounts() const {
    const int n = size();
    for (int from = 0; from < n; ++from) {
      for (int to = 0; to < n; ++to) {
        const int64_t sent = Count(payload(from), to), expected = Count(payload(to), n + from);
        if (sent == expected) continue;
        const int64_t sender = group().members[from], receiver = group().members[to];
        FailureInfo info;
        info.origin_rank = sender;
        info.failed_ranks = {sender, receiver};
        info.group = group().id;
        info.epoch = group().epoch;
        info.sequence = descriptor().sequence;
        return WithFailureInfo(InvalidArgument("group ", group().id, ", operation ", descriptor().sequence, ", all_to_all_v: rank ", sender, " sends ", sent,
                                               " bytes to rank ", receiver, ", which expects ", expected, " bytes from it"), info);
      }
    }
    return absl::OkStatus();
  }
  static int64_t Count(const char* payload, int i) {
    int64_t v;
    std::memcpy(&v, payload + i * sizeof(v), sizeof(v));
    return v;
  }

  const char* const send_;
  char* const recv_;
  const bool agreed_;
  const std::vector<int64_t> send_bytes_, send_offsets_, recv_bytes_, recv_offsets_;
  bool opened_ = false;
};

}  // namespace

std::unique_ptr<TransportOp> MakeAllToAllV(GroupPtr group, const AllToAllV& args) { return std::make_unique<AllToAllVOp>(std::move(group), args); }

}  // namespace moe
