// The Transport over any P2p and Control.
#ifndef MOE_TRANSPORT_P2P_TRANSPORT_H_
#define MOE_TRANSPORT_P2P_TRANSPORT_H_

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "transport/create_group.h"
#include "transport/engine.h"

namespace moe {

class P2pTransport final : public Transport {
 public:
  P2pTransport(std::unique_ptr<P2p> p2p, std::shared_ptr<Control> control, const EngineOptions& options, LogSink log)
      : name_(p2p->name()), rank_(p2p->rank()), world_size_(p2p->world_size()), lanes_(p2p->DescribeLanes()),
        engine_(std::make_shared<Engine>(std::move(p2p), std::move(control), options, std::move(log))) {}
  ~P2pTransport() override { engine_->Close(); }

  std::string name() const override { return name_; }
  int64_t rank() const override { return rank_; }
  int64_t world_size() const override { return world_size_; }
  absl::StatusOr<std::unique_ptr<Communicator>> CreateGroup(int64_t id, absl::Span<const int64_t> members) override {
    std::lock_guard<std::mutex> lock(create_mu_);  // group numbers are proposed one at a time
    return moe::CreateGroup(engine_, id, members);
  }
  std::vector<std::string> DescribePeers() override {
    std::vector<std::string> lines;
    for (int64_t r = 0; r < world_size_; ++r) {
      if (r != rank_) lines.push_back(absl::StrCat("rank ", r, ": ", lanes_[r]));
    }
    return lines;
  }
  void Abort(const absl::Status& reason) override { engine_->AbortAll(reason); }
  absl::Status Shutdown() override { return engine_->Shutdown(); }

 private:
  const std::string name_;
  const int64_t rank_, world_size_;
  const std::vector<std::string> lanes_;
  const std::shared_ptr<Engine> engine_;
  std::mutex create_mu_;
};

}  // namespace moe
#endif  // MOE_TRANSPORT_P2P_TRANSPORT_H_
