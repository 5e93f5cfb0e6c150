#include "transport/inproc/inproc_p2p.h"

#include <algorithm>
#include <cstring>
#include <thread>

namespace moe {

InprocP2p::InprocP2p(std::shared_ptr<InprocWorld> world, int64_t rank, std::vector<Mailbox>* boxes, ParcelPool* pool)
    : world_(std::move(world)), rank_(rank), boxes_(boxes), pool_(pool) {}

void InprocP2p::Isend(P2pRequest* r) {
  Parcel* p = pool_->Get();
  p->sender = rank_;
  p->tag = r->tag;
  p->bytes = r->capacity;
  p->state.store(Parcel::kPosted, std::memory_order_relaxed);
  if (r->capacity <= Parcel::kInline) {
    if (r->capacity > 0) std::memcpy(p->copy, r->data, r->capacity);
    p->data = p->copy;
    p->request = nullptr;
    (*boxes_)[r->peer].Push(p, /*ring=*/true);
    r->End(absl::OkStatus(), r->capacity);
  } else {
    p->data = r->data;
    p->request = r;
    r->handle = p;
    ++sent_;
    (*boxes_)[r->peer].Push(p, /*ring=*/true);
  }
}

void InprocP2p::Irecv(P2pRequest* r) {
  for (size_t i = 0; i < unexpected_.size();) {
    Parcel* p = unexpected_[i];
    if (p->tag != r->tag) { ++i; continue; }
    unexpected_.erase(unexpected_.begin() + static_cast<int64_t>(i));
    if (Deliver(p, r)) return;
  }
  posted_.push_back(r);
}

bool InprocP2p::Deliver(Parcel* p, P2pRequest* r) {
  int posted = Parcel::kPosted;
  const bool taken = p->state.compare_exchange_strong(posted, Parcel::kTaken, std::memory_order_acq_rel);
  int64_t bytes = p->bytes;
  if (taken && bytes > 0) std::memcpy(r->data, p->data, std::min(bytes, r->capacity));
  SendBack(p);
  if (taken) r->End(absl::OkStatus(), bytes);
  return taken;
}

void InprocP2p::SendBack(Parcel* p) {
  // The sender of a small message does not wait for its parcel.
  (*boxes_)[p->sender].Push(p, /*ring=*/p->data != p->copy);
}

bool InprocP2p::Progress() {
  bool moved = false;
  for (Parcel* p = mine().Take(); p != nullptr;) {
    Parcel* next = p->next;
    moved = true;
    if (p->sender == rank_) {  // a receipt
      if (P2pRequest* r = p->request; r != nullptr) {
        --sent_;
        p->request = nullptr;
        r->End(absl::OkStatus(), r->capacity);
      }
      pool_->Put(p);
    } else {
      auto it = std::find_if(posted_.begin(), posted_.end(), [p](const P2pRequest* r) { return r->tag == p->tag; });
      if (it == posted_.end()) {
        unexpected_.push_back(p);
      } else {
        P2pRequest* r = *it;
        posted_.erase(it);
        if (!Deliver(p, r)) posted_.insert(it, r);
      }
    }
    p = next;
  }
  return moved;
}

void InprocP2p::Cancel(P2pRequest* r) {
  if (!r->is_send) {
    auto it = std::find(posted_.begin(), posted_.end(), r);
    if (it == posted_.end()) return;
    posted_.erase(it);
    r->End(absl::CancelledError("withdrawn"), 0);
    return;
  }
  Parcel* p = static_cast<Parcel*>(r->handle);
  int posted = Parcel::kPosted;
  if (!p->state.compare_exchange_strong(posted, Parcel::kWithdrawn, std::memory_order_acq_rel)) return;  // being copied: the receipt comes
  p->request = nullptr;
  --sent_;
  r->End(absl::CancelledError("withdrawn"), 0);
}

void InprocP2p::Abandon() {
  posted_.clear();
  // What was not withdrawn is being copied by its receiver this moment.
  while (sent_ > 0) {
    for (Parcel* p = mine().Take(); p != nullptr;) {
      Parcel* next = p->next;
      if (p->sender == rank_) {
        if (p->request != nullptr) --sent_;
        p->request = nullptr;
        pool_->Put(p);
      } else {
        unexpected_.push_back(p);
      }
      p = next;
    }
    std::this_thread::yield();
  }
  // Senders wait for no receipt of a parcel that nobody will read: they withdraw it when they learn of the end.
  unexpected_.clear();
}

std::vector<std::string> InprocP2p::DescribeLanes() const {
  std::vector<std::string> lanes(world_size(), "memory of this process (one copy)");
  lanes[rank_].clear();
  return lanes;
}

}  // namespace moe
