// Messages between threads of one process.
#ifndef MOE_TRANSPORT_INPROC_INPROC_P2P_H_
#define MOE_TRANSPORT_INPROC_INPROC_P2P_H_

#include <deque>
#include <memory>
#include <vector>

#include "transport/inproc/inproc.h"
#include "transport/inproc/mailbox.h"
#include "transport/p2p.h"

namespace moe {

// Parcels of one rank. Only that rank's engine takes from it and gives back to it; the memory lives as long as the world,
// since receivers may still hold parcels of a rank that has left.
class ParcelPool {
 public:
  Parcel* Get() {
    if (free_.empty()) {
      all_.emplace_back();
      return &all_.back();
    }
    Parcel* p = free_.back();
    free_.pop_back();
    return p;
  }
  void Put(Parcel* p) { free_.push_back(p); }

 private:
  std::deque<Parcel> all_;
  std::vector<Parcel*> free_;
};

class InprocP2p final : public P2p {
 public:
  InprocP2p(std::shared_ptr<InprocWorld> world, int64_t rank, std::vector<Mailbox>* boxes, ParcelPool* pool);

  std::string name() const override { return "inproc"; }
  int64_t rank() const override { return rank_; }
  int64_t world_size() const override { return world_->world_size(); }
  void Isend(P2pRequest* request) override;
  void Irecv(P2pRequest* request) override;
  bool Progress() override;
  void Cancel(P2pRequest* request) override;
  void Discard(uint64_t, uint64_t) override {}  // senders withdraw
  void Sever() override {}                      // likewise
  void Abandon() override;
  absl::Status link_status() const override { return absl::OkStatus(); }
  bool PrepareBlock() override { return mine().PrepareBlock(); }
  void Block(absl::Duration timeout) override { mine().Block(timeout); }
  void Wake() override { mine().Ring(); }
  std::vector<std::string> DescribeLanes() const override;

 private:
  Mailbox& mine() { return (*boxes_)[rank_]; }
  // Copies if the sender has not withdrawn it (then false), and sends the parcel back.
  bool Deliver(Parcel* parcel, P2pRequest* request);
  void SendBack(Parcel* parcel);

  const std::shared_ptr<InprocWorld> world_;
  const int64_t rank_;
  std::vector<Mailbox>* const boxes_;
  ParcelPool* const pool_;
  std::vector<P2pRequest*> posted_;     // receives, in posting order
  std::deque<Parcel*> unexpected_;      // parcels nobody has asked for yet, oldest first
  int64_t sent_ = 0;                    // parcels whose receipt a request waits for
};

}  // namespace moe
#endif  // MOE_TRANSPORT_INPROC_INPROC_P2P_H_
