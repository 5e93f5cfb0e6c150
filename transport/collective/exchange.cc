#include "transport/collective/exchange.h"

#include <cstring>

namespace moe {

void ExchangeOp::PostOpenings(int64_t payload_bytes, bool same_for_all, absl::FunctionRef<void(int, char*)> fill) {
  const int n = size();
  payload_bytes_ = payload_bytes;
  slot_ = kOpeningHeader + (std::max(kOpeningInline, payload_bytes) + 63) / 64 * 64;
  received_ = Scratch(n * slot_);
  const int64_t stride = same_for_all ? 0 : slot_;
  char* sent = Scratch((same_for_all ? 1 : n) * slot_);
  own_ = sent + rank() * stride;
  for (int k = 1; k < n; ++k) {
    const int from = (rank() - k + n) % n;
    Recv(n + from, from, 0, received_ + from * slot_, slot_);
  }
  for (int k = 0; k < n; ++k) {  // k = 0: this rank's own
    const int to = (rank() + k) % n;
    char* message = sent + to * stride;
    if (k == 0 || !same_for_all) {
      std::memset(message, 0, kOpeningHeader);
      std::memcpy(message, &descriptor(), sizeof(Descriptor));
      fill(to, message + kOpeningHeader);
    }
    if (k > 0) Send(to, to, 0, message, kOpeningHeader + payload_bytes);
  }
}

absl::Status ExchangeOp::CheckOpenings() const {
  const int n = size();
  // Member 0's word is the reference, so that all members name the same pair.
  Descriptor first;
  for (int i = 0; i < n; ++i) {
    Descriptor d = descriptor();
    if (i != rank()) {
      if (request(n + i).bytes < kOpeningHeader) return CheckLength(n + i, i, kOpeningHeader + payload_bytes_);
      std::memcpy(&d, received_ + i * slot_, sizeof(d));
    }
    if (i == 0) first = d;
    else if (!Agree(first, d)) return Disagreement(group().id, group().epoch, first, d);
  }
  for (int i = 0; i < n; ++i) {
    if (i != rank()) MOE_RETURN_IF_ERROR(CheckLength(n + i, i, kOpeningHeader + payload_bytes_));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> ExchangeOp::PumpExchange() {
  const int n = size();
  for (bool moved = true; moved;) {
    moved = false;
    for (; recvs_.low < recvs_.high; ++recvs_.low, moved = true) {
      const int from = (rank() - recvs_.low + n) % n;
      const int64_t bytes = BlockOf(from).recv_bytes;
      if (bytes == 0) continue;
      if (!done(n + from)) break;
      MOE_RETURN_IF_ERROR(CheckLength(n + from, from, bytes));
    }
    for (; recvs_.high < n && recvs_.high - recvs_.low < kWindow; ++recvs_.high, moved = true) {
      const int from = (rank() - recvs_.high + n) % n;
      const Block b = BlockOf(from);
      if (b.recv_bytes > 0) Recv(n + from, from, phase_, b.recv, b.recv_bytes);
    }
    for (; sends_.low < sends_.high; ++sends_.low, moved = true) {
      const int to = (rank() + sends_.low) % n;
      if (BlockOf(to).send_bytes > 0 && !done(to)) break;
    }
    for (; sends_.high < n && sends_.high - sends_.low < kWindow; ++sends_.high, moved = true) {
      const int to = (rank() + sends_.high) % n;
      const Block b = BlockOf(to);
      if (b.send_bytes > 0) Send(to, to, phase_, b.send, b.send_bytes);
    }
  }
  return recvs_.low == n && sends_.low == n;
}

}  // namespace moe
