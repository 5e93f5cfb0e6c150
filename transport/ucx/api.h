// libucp, loaded at run time: this library works without it, and either the system's or another build can be chosen. Compiled against the
// headers of 1.13; only functions that later versions still have.
#ifndef MOE_TRANSPORT_UCX_API_H_
#define MOE_TRANSPORT_UCX_API_H_

#include <ucp/api/ucp.h>

#include <memory>
#include <string>

#include "core/base/status.h"

#define MOE_UCX_FUNCTIONS(X)                                                                                                 \
  X(ucp_get_version_string) X(ucp_config_read) X(ucp_config_modify) X(ucp_config_release) X(ucp_init_version) X(ucp_cleanup) \
  X(ucp_worker_create) X(ucp_worker_destroy) X(ucp_worker_get_address) X(ucp_worker_release_address) X(ucp_worker_get_efd)   \
  X(ucp_worker_arm) X(ucp_worker_progress) X(ucp_ep_create) X(ucp_ep_close_nbx) X(ucp_ep_print_info) X(ucp_tag_send_nbx)     \
  X(ucp_tag_send_sync_nbx)                                                                                                   \
  X(ucp_tag_recv_nbx) X(ucp_tag_probe_nb) X(ucp_tag_msg_recv_nbx) X(ucp_request_cancel) X(ucp_request_free)                  \
  X(ucp_request_check_status) X(ucs_status_string)

namespace moe {

struct UcxApi {
#define MOE_UCX_MEMBER(name) decltype(&::name) name = nullptr;
  MOE_UCX_FUNCTIONS(MOE_UCX_MEMBER)
#undef MOE_UCX_MEMBER
  std::string version;  // "1.13.1"
  std::string path;     // of the file that was loaded
};

// `library`: path or name; empty: the system's libucp.so.0. It stays loaded for the life of the process, and changes no signal
// handler. FAILED_PRECONDITION when it is not there or another one is loaded already.
absl::StatusOr<std::shared_ptr<const UcxApi>> LoadUcx(const std::string& library);

}  // namespace moe
#endif  // MOE_TRANSPORT_UCX_API_H_
