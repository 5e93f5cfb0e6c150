#include <dlfcn.h>
#include <unistd.h>

#include <fstream>

#include "capi/boundary.h"
#include "capi/cores.h"
#include "core/device/cpu/isa.h"
#include "core/device/device.h"
#include "experts/registry.h"
#include "nlohmann/json.hpp"
#include "transport/ucx/ucx.h"

using moe::capi::Catch;
using moe::capi::NullArgument;
using moe::capi::ToString;

namespace {

std::string CpuModel() {
  std::ifstream f("/proc/cpuinfo");
  for (std::string line; std::getline(f, line);)
    if (const size_t colon = line.find(": "); line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  return "unknown";
}

bool CanLoad(const char* library) {
  void* h = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  if (h) dlclose(h);
  return h != nullptr;
}

}  // namespace

extern "C" {

void moe_version(int32_t* major, int32_t* minor, int32_t* patch) {
  if (major) *major = MOE_VERSION_MAJOR;
  if (minor) *minor = MOE_VERSION_MINOR;
  if (patch) *patch = MOE_VERSION_PATCH;
}

moe_status* moe_info(const char* ucx_library, char** json) {
  return Catch([&]() -> absl::Status {
    if (json == nullptr) return NullArgument("json");
    nlohmann::ordered_json j;
    j["version"] = absl::StrCat(MOE_VERSION_MAJOR, ".", MOE_VERSION_MINOR, ".", MOE_VERSION_PATCH);
    MOE_ASSIGN_OR_RETURN(const auto device, moe::MakeCpuDevice(1));
    const int64_t cores = moe::capi::UsableCores();
    j["cpu"] = {{"model", CpuModel()}, {"cores", cores}, {"memory_bytes", static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE)}, {"kernels", device->Describe()}};
    j["cores"] = cores;
    j["isa"] = moe::Name(moe::BestIsa());
    j["blas"] = "built in";
    const auto ucx = moe::UcxProbe(ucx_library ? ucx_library : "");
    j["ucx"]["found"] = ucx.found;
    if (ucx.found) {
      j["ucx"]["version"] = ucx.version;
      j["ucx"]["path"] = ucx.path;
    } else {
      j["ucx"]["remedy"] = ucx.remedy;
    }
    j["cuda"] = {{"built", false}, {"driver", CanLoad("libcuda.so.1")}, {"nccl", CanLoad("libnccl.so.2")}, {"remedy", "this version computes on the CPU only"}};
    const auto modules = moe::MakeDefaultRegistry();
    j["gates"] = modules->GateNames();
    j["experts"] = modules->ExpertNames();
    j["partitions"] = modules->PartitionNames();
    *json = ToString(j.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    return absl::OkStatus();
  });
}

}  // extern "C"
