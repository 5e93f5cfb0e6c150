#include "transport/ucx/profile.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace moe {

std::string ChooseTls(const UcxOptions& options, bool cma_permitted) {
  // The user's UCX_* variables win.
  const char* set = getenv("UCX_TLS");
  if (set != nullptr) return set;
  std::vector<std::string> tls = absl::StrSplit(options.tls.empty() ? "posix,cma,tcp,self" : options.tls, ',', absl::SkipWhitespace());
  if (!cma_permitted) tls.erase(std::remove(tls.begin(), tls.end(), "cma"), tls.end());
  return absl::StrJoin(tls, ",");
}

bool UsesSharedMemory(const std::string& tls) {
  for (absl::string_view t : absl::StrSplit(tls, ',')) {
    if (t == "posix" || t == "shm" || t == "sm" || t == "mm" || t == "all") return true;
  }
  return false;
}

absl::StatusOr<UcxConfig> MakeConfig(const std::shared_ptr<const UcxApi>& api, const UcxOptions& options, const std::string& tls, const LogSink& log) {
  ucp_config_t* raw = nullptr;
  if (const ucs_status_t s = api->ucp_config_read(nullptr, nullptr, &raw); s != UCS_OK) {
    return FailedPrecondition("UCX ", api->version, ": ucp_config_read: ", api->ucs_status_string(s), "; check the UCX_* environment variables");
  }
  UcxConfig config(raw, UcxConfigDeleter{api});
  std::vector<std::pair<std::string, std::string>> profile = {
      {"TLS", tls},
      {"KEEPALIVE_INTERVAL", "1s"},
      {"RNDV_THRESH", "64k"},  // a starting value: below it two copies should cost less than asking for one; not confirmed by an own sweep
  };
  // Else the error mode that we need makes UCX use TCP between processes of one machine.
  if (UsesSharedMemory(tls)) profile.push_back({"MM_ERROR_HANDLING", "y"});
  if (!options.net_device.empty()) profile.push_back({"NET_DEVICES", options.net_device});
  for (const auto& [key, value] : profile) {
    const std::string variable = "UCX_" + key;
    if (const char* set = getenv(variable.c_str()); set != nullptr) {
      Log(log, LogLevel::kInfo, absl::StrCat("ucx: ", variable, "=", set, " from the environment instead of ", value));
      continue;
    }
    const ucs_status_t s = api->ucp_config_modify(raw, key.c_str(), value.c_str());
    if (s == UCS_OK) continue;
    const std::string message = absl::StrCat("UCX ", api->version, " does not take ", variable, "=", value, ": ", api->ucs_status_string(s));
    if (key == "TLS" || key == "NET_DEVICES") return FailedPrecondition(message);
    Log(log, LogLevel::kWarning, message);
  }
  return config;
}

}  // namespace moe
