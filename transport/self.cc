#include "transport/self.h"

#include "transport/p2p_transport.h"

namespace moe {
namespace {

// Never asked for a message: groups of one have no peers.
class NoPeers final : public P2p {
 public:
  std::string name() const override { return "self"; }
  int64_t rank() const override { return 0; }
  int64_t world_size() const override { return 1; }
  void Isend(P2pRequest* r) override { r->End(Internal("a message in a world of one rank"), 0); }
  void Irecv(P2pRequest* r) override { r->End(Internal("a message in a world of one rank"), 0); }
  bool Progress() override { return false; }
  void Cancel(P2pRequest*) override {}
  void Discard(uint64_t, uint64_t) override {}
  void Sever() override {}
  void Abandon() override {}
  absl::Status link_status() const override { return absl::OkStatus(); }
  bool PrepareBlock() override { return false; }
  void Block(absl::Duration) override {}
  void Wake() override {}
  std::vector<std::string> DescribeLanes() const override { return {""}; }
};

}  // namespace

std::unique_ptr<Transport> MakeSelfTransport() {
  return std::make_unique<P2pTransport>(std::make_unique<NoPeers>(), std::make_shared<NoControl>(), EngineOptions(), LogSink());
}

}  // namespace moe
