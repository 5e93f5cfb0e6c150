// Where other ranks' threads leave parcels for one rank: a stack without locks (the owner takes it whole and turns it
// round), and a bell for an owner that sleeps.
#ifndef MOE_TRANSPORT_INPROC_MAILBOX_H_
#define MOE_TRANSPORT_INPROC_MAILBOX_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "absl/time/time.h"
#include "transport/p2p.h"

namespace moe {

// One message on its way to the receiver, then back to its sender as the receipt. Owned by the sender's pool, which lives
// as long as the world.
struct Parcel {
  enum State : int { kPosted, kTaken, kWithdrawn };
  static constexpr int64_t kInline = 1024;

  Parcel* next = nullptr;
  int64_t sender = -1;
  uint64_t tag = 0;
  const void* data = nullptr;         // the sender's buffer, or `copy`
  int64_t bytes = 0;
  // Who reads or frees `data` first wins: the receiver takes it, the sender withdraws it.
  std::atomic<int> state{kPosted};
  P2pRequest* request = nullptr;      // the sender's, null when nobody waits for the receipt
  alignas(64) char copy[kInline];
};

class Mailbox {
 public:
  void Push(Parcel* p, bool ring) {
    p->next = head_.load(std::memory_order_relaxed);
    while (!head_.compare_exchange_weak(p->next, p, std::memory_order_seq_cst, std::memory_order_relaxed)) {
    }
    if (ring && sleeping_.load(std::memory_order_seq_cst)) Ring();
  }

  // All parcels, oldest first.
  Parcel* Take() {
    if (head_.load(std::memory_order_relaxed) == nullptr) return nullptr;
    Parcel* p = head_.exchange(nullptr, std::memory_order_acquire);
    Parcel* first = nullptr;
    while (p != nullptr) {
      Parcel* next = p->next;
      p->next = first;
      first = p;
      p = next;
    }
    return first;
  }

  // The owner: before a sleep. False when there is something to take.
  bool PrepareBlock() {
    sleeping_.store(true, std::memory_order_seq_cst);
    if (head_.load(std::memory_order_seq_cst) == nullptr) return true;
    sleeping_.store(false, std::memory_order_relaxed);
    return false;
  }
  void Block(absl::Duration timeout) {
    std::unique_lock<std::mutex> lock(mu_);
    cv_.wait_for(lock, absl::ToChronoNanoseconds(timeout), [this] { return rung_; });
    rung_ = false;
    sleeping_.store(false, std::memory_order_relaxed);
  }
  void Ring() {
    std::lock_guard<std::mutex> lock(mu_);
    rung_ = true;
    cv_.notify_one();
  }

 private:
  alignas(64) std::atomic<Parcel*> head_{nullptr};
  alignas(64) std::atomic<bool> sleeping_{false};
  std::mutex mu_;
  std::condition_variable cv_;
  bool rung_ = false;
};

}  // namespace moe
#endif  // MOE_TRANSPORT_INPROC_MAILBOX_H_
