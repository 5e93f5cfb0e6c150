// Messages over UCX: one worker per rank, one endpoint per peer, none to oneself (in this error mode UCX fails on those).
#ifndef MOE_TRANSPORT_UCX_UCX_P2P_H_
#define MOE_TRANSPORT_UCX_UCX_P2P_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/p2p.h"
#include "transport/ucx/api.h"

namespace moe {

class UcxP2p final : public P2p {
 public:
  // `config` is read, not kept.
  static absl::StatusOr<std::unique_ptr<UcxP2p>> Create(std::shared_ptr<const UcxApi> api, const ucp_config_t* config, int64_t rank, int64_t world_size);
  ~UcxP2p() override;

  const std::string& address() const { return address_; }
  // Endpoints to all others.
  absl::Status Connect(const std::vector<std::string>& addresses);
  // A pair of endpoints is complete only after the first message that asks for an answer (a large one), and 1.13 ends the process when one
  // is closed before that ("got REP message", openucx/ucx pull 8175). So a start sends every peer an empty message with receipt, waits
  // until Settled on all ranks, and says SetSettled. A transport that ends before that leaves its worker behind.
  void StartSettling(int64_t epoch);
  bool Settled() const { return unsettled_ == 0; }
  void SetSettled() { settled_ = true; }
  // What ucp_ep_print_info says.
  std::string EndpointInfo(int64_t peer) const;
  void set_lanes(std::vector<std::string> lanes) { lanes_ = std::move(lanes); }

  std::string name() const override { return "ucx"; }
  int64_t rank() const override { return rank_; }
  int64_t world_size() const override { return world_size_; }
  void Isend(P2pRequest* request) override;
  void Irecv(P2pRequest* request) override;
  bool Progress() override;
  void Cancel(P2pRequest* request) override;
  void Discard(uint64_t tag, uint64_t mask) override;
  void Sever() override;
  void Abandon() override;
  absl::Status link_status() const override { return link_status_; }
  bool PrepareBlock() override;
  void Block(absl::Duration timeout) override;
  void Wake() override;
  std::vector<std::string> DescribeLanes() const override { return lanes_; }

 private:
  struct Link {
    UcxP2p* self = nullptr;
    int64_t peer = -1;
    ucp_ep_h ep = nullptr;
  };
  UcxP2p(std::shared_ptr<const UcxApi> api, int64_t rank, int64_t world_size);

  static void OnSent(void* handle, ucs_status_t status, void* user_data);
  static void OnReceived(void* handle, ucs_status_t status, const ucp_tag_recv_info_t* info, void* user_data);
  static void OnGreeted(void* handle, ucs_status_t status, void* user_data);
  static void OnGreeting(void* handle, ucs_status_t status, const ucp_tag_recv_info_t* info, void* user_data);
  static void OnDiscarded(void* handle, ucs_status_t status, const ucp_tag_recv_info_t* info, void* user_data);
  static void OnLinkError(void* arg, ucp_ep_h ep, ucs_status_t status);
  void EndSend(P2pRequest* r, ucs_status_t status);
  void EndRecv(P2pRequest* r, ucs_status_t status, size_t length);
  void Broken(int64_t peer, ucs_status_t status);

  const std::shared_ptr<const UcxApi> api_;
  const int64_t rank_, world_size_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::string address_;
  std::vector<Link> links_;
  std::vector<ucs_status_ptr_t> closing_;
  int64_t unsettled_ = 0;
  std::vector<std::string> lanes_;
  absl::Status link_status_;
  bool settled_ = false, severed_ = false, abandoned_ = false;
  int worker_fd_ = -1, wake_fd_ = -1;
};

}  // namespace moe
#endif  // MOE_TRANSPORT_UCX_UCX_P2P_H_
