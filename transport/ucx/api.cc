#include "transport/ucx/api.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>

#include <cstring>
#include <utility>
#include <vector>

#include "transport/ucx/environment.h"

namespace moe {
namespace {

// The constructor of libucs installs handlers for SEGV, BUS, FPE, ILL and HUP that outlive dlclose, unless these are set while it is
// loaded. Its messages go to standard output, which belongs to the program; errors are told by status.
std::vector<std::pair<std::string, std::string>> LoadSettings() {
  return {{"UCX_HANDLE_ERRORS", "none"}, {"UCX_ERROR_SIGNALS", ""}, {"UCX_DEBUG_SIGNO", "0"}, {"UCX_LOG_LEVEL", "fatal"}};
}

std::string RealPath(const std::string& path) {
  char* p = realpath(path.c_str(), nullptr);
  std::string out = p == nullptr ? path : p;
  free(p);
  return out;
}

// Path of the libucp that this process has loaded, or empty.
std::string LoadedUcp() {
  std::string found;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        const char* base = std::strrchr(info->dlpi_name, '/');
        if (std::strncmp(base == nullptr ? info->dlpi_name : base + 1, "libucp", 6) != 0) return 0;
        *static_cast<std::string*>(out) = info->dlpi_name;
        return 1;
      },
      &found);
  return found;
}

absl::Status NotFound(const std::string& name, const char* why) {
  return FailedPrecondition("transport=ucx needs libucp, but ", name, " cannot be loaded (", why == nullptr ? "?" : why,
                            "); install the package libucx0 (Debian, Ubuntu) or set transport.ucx_library to its path; transport=inproc works without");
}

}  // namespace

absl::StatusOr<std::shared_ptr<const UcxApi>> LoadUcx(const std::string& library) {
  const std::string name = library.empty() ? "libucp.so.0" : library;
  const bool is_path = name.find('/') != std::string::npos;
  if (const std::string loaded = LoadedUcp(); !loaded.empty() && is_path && RealPath(loaded) != RealPath(name)) {
    return FailedPrecondition("transport.ucx_library ", name, ": this process has loaded ", loaded, " already, and two versions of UCX do not work in one process");
  }
  void* handle = nullptr;
  {
    const ScopedEnvironment settings(LoadSettings());
    if (is_path) {
      // A copy outside the linker's path (the wheel's own run path is wrong) is found by loading its parts in this order.
      const size_t at = name.rfind("libucp");
      for (const char* part : {"libucm", "libucs", "libuct"}) {
        if (at != std::string::npos) dlopen((name.substr(0, at) + part + name.substr(at + 6)).c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
      }
    }
    handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  }
  if (handle == nullptr) return NotFound(name, dlerror());
  auto api = std::make_shared<UcxApi>();
#define MOE_UCX_LOAD(f)                                                              \
  api->f = reinterpret_cast<decltype(api->f)>(dlsym(handle, #f));                    \
  if (api->f == nullptr) return NotFound(name, "it lacks the function " #f);
  MOE_UCX_FUNCTIONS(MOE_UCX_LOAD)
#undef MOE_UCX_LOAD
  api->version = api->ucp_get_version_string();
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(api->ucp_init_version), &info) != 0 && info.dli_fname != nullptr) api->path = info.dli_fname;
  return std::shared_ptr<const UcxApi>(api);
}

}  // namespace moe
