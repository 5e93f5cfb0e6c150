#include "transport/ucx/ucx_p2p.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "transport/tag.h"
#include "transport/ucx/environment.h"

namespace moe {

UcxP2p::UcxP2p(std::shared_ptr<const UcxApi> api, int64_t rank, int64_t world_size)
    : api_(std::move(api)), rank_(rank), world_size_(world_size), links_(world_size), lanes_(world_size), wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

absl::StatusOr<std::unique_ptr<UcxP2p>> UcxP2p::Create(std::shared_ptr<const UcxApi> api, const ucp_config_t* config, int64_t rank, int64_t world_size) {
  auto p = std::unique_ptr<UcxP2p>(new UcxP2p(std::move(api), rank, world_size));
  const UcxApi& ucx = *p->api_;
  const auto failed = [&](const char* call, ucs_status_t s) {
    return absl::UnavailableError(absl::StrCat("UCX ", ucx.version, " on rank ", rank, ": ", call, ": ", ucx.ucs_status_string(s)));
  };

  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  params.estimated_num_eps = static_cast<size_t>(world_size);
  params.mt_workers_shared = 0;
  ucs_status_t s;
  {
    // In our error mode cma is used only with this, and 1.13 takes it only from the environment (ucp_config_modify answers OK and ignores it).
    const ScopedEnvironment settings(std::vector<std::pair<std::string, std::string>>{{"UCX_CMA_MEMORY_INVALIDATE", "y"}});
    s = ucx.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &p->context_);
  }
  if (s != UCS_OK) {
    p->context_ = nullptr;
    return failed("ucp_init (check transport.ucx_tls and transport.net_device)", s);
  }

  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;  // any thread, under the engine's lock
  s = ucx.ucp_worker_create(p->context_, &worker, &p->worker_);
  if (s != UCS_OK) {
    p->worker_ = nullptr;
    return failed("ucp_worker_create", s);
  }
  s = ucx.ucp_worker_get_efd(p->worker_, &p->worker_fd_);
  if (s != UCS_OK) return failed("ucp_worker_get_efd", s);

  ucp_address_t* address = nullptr;
  size_t length = 0;
  s = ucx.ucp_worker_get_address(p->worker_, &address, &length);
  if (s != UCS_OK) return failed("ucp_worker_get_address", s);
  p->address_.assign(reinterpret_cast<const char*>(address), length);
  ucx.ucp_worker_release_address(p->worker_, address);
  return p;
}

UcxP2p::~UcxP2p() {
  Abandon();
  if (wake_fd_ >= 0) close(wake_fd_);
}

absl::Status UcxP2p::Connect(const std::vector<std::string>& addresses) {
  for (int64_t r = 0; r < world_size_; ++r) {
    if (r == rank_) continue;
    links_[r].self = this;
    links_[r].peer = r;
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(addresses[r].data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = OnLinkError;
    params.err_handler.arg = &links_[r];
    const ucs_status_t s = api_->ucp_ep_create(worker_, &params, &links_[r].ep);
    if (s != UCS_OK) {
      links_[r].ep = nullptr;
      return absl::UnavailableError(absl::StrCat("UCX ", api_->version, ": rank ", rank_, " cannot reach rank ", r, ": ", api_->ucs_status_string(s),
                                                 "; check transport.ucx_tls and transport.net_device"));
    }
  }
  return absl::OkStatus();
}

std::string UcxP2p::EndpointInfo(int64_t peer) const {
  char* text = nullptr;
  size_t size = 0;
  FILE* stream = open_memstream(&text, &size);
  if (stream == nullptr) return "";
  api_->ucp_ep_print_info(links_[peer].ep, stream);
  fclose(stream);
  std::string out(text, size);
  free(text);
  return out;
}

void UcxP2p::Isend(P2pRequest* r) {
  if (severed_) return r->End(absl::CancelledError("the links are cut"), 0);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = OnSent;
  param.user_data = r;
  r->context = this;
  const ucs_status_ptr_t p = api_->ucp_tag_send_nbx(links_[r->peer].ep, r->data, static_cast<size_t>(r->capacity), r->tag, &param);
  if (p == nullptr) EndSend(r, UCS_OK);  // done, and no callback comes
  else if (UCS_PTR_IS_ERR(p)) EndSend(r, UCS_PTR_STATUS(p));
  else r->handle = p;
}

void UcxP2p::Irecv(P2pRequest* r) {
  if (severed_) return r->End(absl::CancelledError("the links are cut"), 0);
  ucp_request_param_t param{};
  // The callback always, perhaps before the call returns: 1.13 does not tell the length of a receive that is done at once.
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv = OnReceived;
  param.user_data = r;
  r->context = this;
  const ucs_status_ptr_t p = api_->ucp_tag_recv_nbx(worker_, r->data, static_cast<size_t>(r->capacity), r->tag, kExactTag, &param);
  if (r->state == P2pRequest::State::kDone) return;
  if (UCS_PTR_IS_ERR(p)) EndRecv(r, UCS_PTR_STATUS(p), 0);
  else r->handle = p;
}

void UcxP2p::OnSent(void* handle, ucs_status_t status, void* user_data) {
  auto* r = static_cast<P2pRequest*>(user_data);
  auto* self = static_cast<UcxP2p*>(r->context);
  self->api_->ucp_request_free(handle);
  if (!self->abandoned_) self->EndSend(r, status);
}

void UcxP2p::OnReceived(void* handle, ucs_status_t status, const ucp_tag_recv_info_t* info, void* user_data) {
  auto* r = static_cast<P2pRequest*>(user_data);
  auto* self = static_cast<UcxP2p*>(r->context);
  const size_t length = info == nullptr ? 0 : info->length;
  self->api_->ucp_request_free(handle);
  if (!self->abandoned_) self->EndRecv(r, status, length);
}

void UcxP2p::EndSend(P2pRequest* r, ucs_status_t status) {
  r->handle = nullptr;
  if (status == UCS_OK) return r->End(absl::OkStatus(), r->capacity);
  if (status != UCS_ERR_CANCELED) Broken(r->peer, status);
  r->End(absl::CancelledError("not sent"), 0);
}

void UcxP2p::EndRecv(P2pRequest* r, ucs_status_t status, size_t length) {
  r->handle = nullptr;
  if (status == UCS_OK) return r->End(absl::OkStatus(), static_cast<int64_t>(length));
  if (status == UCS_ERR_MESSAGE_TRUNCATED) {
    const int64_t n = static_cast<int64_t>(length);  // not every version fills it in
    return r->End(absl::OkStatus(), n > r->capacity ? n : P2pRequest::kLonger);
  }
  if (status != UCS_ERR_CANCELED) Broken(r->peer, status);
  r->End(absl::CancelledError("not received"), 0);
}

void UcxP2p::Broken(int64_t peer, ucs_status_t status) {
  if (severed_ || !link_status_.ok()) return;
  FailureInfo info;
  info.origin_rank = rank_;
  info.failed_ranks = {peer};
  link_status_ = WithFailureInfo(absl::UnavailableError(absl::StrCat("the connection of rank ", rank_, " to rank ", peer, " broke (UCX: ", api_->ucs_status_string(status), ")")), info);
}

void UcxP2p::OnLinkError(void* arg, ucp_ep_h, ucs_status_t status) {
  auto* link = static_cast<Link*>(arg);
  link->self->Broken(link->peer, status);
}

bool UcxP2p::Progress() {
  if (worker_ == nullptr) return false;
  const bool moved = api_->ucp_worker_progress(worker_) > 0;
  for (size_t i = 0; i < closing_.size();) {
    if (api_->ucp_request_check_status(closing_[i]) == UCS_INPROGRESS) { ++i; continue; }
    api_->ucp_request_free(closing_[i]);
    closing_[i] = closing_.back();
    closing_.pop_back();
  }
  return moved;
}

void UcxP2p::StartSettling(int64_t epoch) {
  for (Link& link : links_) {
    if (link.ep == nullptr) continue;
    unsettled_ += 2;
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    param.user_data = &link;
    param.cb.recv = OnGreeting;
    ucs_status_ptr_t p = api_->ucp_tag_recv_nbx(worker_, nullptr, 0, HelloTag(epoch, link.peer), kExactTag, &param);
    if (UCS_PTR_IS_ERR(p)) Broken(link.peer, UCS_PTR_STATUS(p));
    param.cb.send = OnGreeted;
    p = api_->ucp_tag_send_sync_nbx(link.ep, nullptr, 0, HelloTag(epoch, rank_), &param);
    if (UCS_PTR_IS_ERR(p)) Broken(link.peer, UCS_PTR_STATUS(p));
  }
}

void UcxP2p::OnGreeted(void* handle, ucs_status_t status, void* user_data) {
  auto* link = static_cast<Link*>(user_data);
  link->self->api_->ucp_request_free(handle);
  if (status == UCS_OK) --link->self->unsettled_;
  else link->self->Broken(link->peer, status);
}

void UcxP2p::OnGreeting(void* handle, ucs_status_t status, const ucp_tag_recv_info_t*, void* user_data) { OnGreeted(handle, status, user_data); }

void UcxP2p::Cancel(P2pRequest* r) {
  // A send cannot be taken back: its peer may be reading. In PEER mode a dead peer completes sends only; receives wait for this.
  if (!r->is_send && r->handle != nullptr) api_->ucp_request_cancel(worker_, r->handle);
}

void UcxP2p::OnDiscarded(void* handle, ucs_status_t, const ucp_tag_recv_info_t*, void* user_data) {
  static_cast<UcxP2p*>(user_data)->api_->ucp_request_free(handle);
}

void UcxP2p::Discard(uint64_t tag, uint64_t mask) {
  if (worker_ == nullptr || severed_) return;
  for (;;) {
    ucp_tag_recv_info_t info{};
    const ucp_tag_message_h message = api_->ucp_tag_probe_nb(worker_, tag, mask, /*remove=*/1, &info);
    if (message == nullptr) return;
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.recv = OnDiscarded;
    param.user_data = this;
    // No room for it: it ends as truncated, and its sender gets the buffer back.
    api_->ucp_tag_msg_recv_nbx(worker_, nullptr, 0, message, &param);
  }
}

void UcxP2p::Sever() {
  severed_ = true;
  if (!settled_) return;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  for (Link& link : links_) {
    if (link.ep == nullptr) continue;
    const ucs_status_ptr_t p = api_->ucp_ep_close_nbx(std::exchange(link.ep, nullptr), &param);
    if (p != nullptr && !UCS_PTR_IS_ERR(p)) closing_.push_back(p);
  }
}

void UcxP2p::Abandon() {
  if (abandoned_) return;
  if (worker_ != nullptr && !severed_) Sever();
  abandoned_ = true;
  if (!settled_) {
    worker_ = nullptr;
    context_ = nullptr;
    return;
  }
  // Closing needs a few turns; what is not done by then goes with the worker.
  for (int i = 0; i < 1000 && !closing_.empty(); ++i) Progress();
  for (ucs_status_ptr_t p : closing_) api_->ucp_request_free(p);
  closing_.clear();
  if (worker_ != nullptr) api_->ucp_worker_destroy(std::exchange(worker_, nullptr));
  if (context_ != nullptr) api_->ucp_cleanup(std::exchange(context_, nullptr));
}

bool UcxP2p::PrepareBlock() { return worker_ == nullptr || api_->ucp_worker_arm(worker_) == UCS_OK; }

void UcxP2p::Block(absl::Duration timeout) {
  // Without the worker there is no descriptor of it.
  pollfd fds[2] = {{wake_fd_, POLLIN, 0}, {worker_fd_, POLLIN, 0}};
  poll(fds, abandoned_ ? 1 : 2, static_cast<int>(absl::ToInt64Milliseconds(timeout)));
  uint64_t count;
  if (fds[0].revents != 0 && read(wake_fd_, &count, sizeof(count)) < 0) return;
}

void UcxP2p::Wake() {
  const uint64_t one = 1;
  if (write(wake_fd_, &one, sizeof(one)) < 0) return;  // full: it is awake anyway
}

}  // namespace moe
