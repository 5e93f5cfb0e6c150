// The settings of UCX that were found to survive failures and to be fast.
#ifndef MOE_TRANSPORT_UCX_PROFILE_H_
#define MOE_TRANSPORT_UCX_PROFILE_H_

#include <memory>
#include <string>

#include "core/base/log.h"
#include "transport/ucx/api.h"
#include "transport/ucx/ucx.h"

namespace moe {

struct UcxConfigDeleter {
  std::shared_ptr<const UcxApi> api;
  void operator()(ucp_config_t* c) const { api->ucp_config_release(c); }
};
using UcxConfig = std::unique_ptr<ucp_config_t, UcxConfigDeleter>;

// The transports that the options ask for (the environment's UCX_TLS wins), without cma when it is not permitted.
std::string ChooseTls(const UcxOptions& options, bool cma_permitted);
bool UsesSharedMemory(const std::string& tls);
// The user's UCX_* variables, then our profile where they are silent.
absl::StatusOr<UcxConfig> MakeConfig(const std::shared_ptr<const UcxApi>& api, const UcxOptions& options, const std::string& tls, const LogSink& log);

}  // namespace moe
#endif  // MOE_TRANSPORT_UCX_PROFILE_H_
