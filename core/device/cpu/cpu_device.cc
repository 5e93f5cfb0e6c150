#include "core/device/cpu/cpu_device.h"

#include <algorithm>

#include "core/device/cpu/huge_pages.h"

namespace moe {

CpuDevice::CpuDevice(int threads, Isa isa)
    : isa_(isa), kernels_(KernelsOf(isa)), pool_(threads), matmul_(&pool_, &kernels_), worker_scratch_(threads) {}

std::string CpuDevice::Describe() const {
  return absl::StrCat("cpu: ", Name(isa_), " kernels, ", num_threads(), num_threads() == 1 ? " thread" : " threads", ", best of this machine: ", Name(BestIsa()));
}

absl::StatusOr<void*> CpuDevice::Allocate(int64_t bytes) {
  MOE_ASSIGN_OR_RETURN(void* data, ReferenceDevice::Allocate(bytes));
  AdviseHugePages(data, bytes);
  return data;
}

absl::StatusOr<std::unique_ptr<Device>> MakeCpuDevice(int threads, Isa isa) {
  if (threads < 1) return InvalidArgument("cpu device: threads is ", threads, ", wanted 1 or more");
  const std::vector<Isa> isas = AvailableIsas();
  if (std::find(isas.begin(), isas.end(), isa) == isas.end())
    return InvalidArgument("cpu device: this machine lacks ", Name(isa), "; the best it has is ", Name(BestIsa()));
  return std::make_unique<CpuDevice>(threads, isa);
}

absl::StatusOr<std::unique_ptr<Device>> MakeCpuDevice(int threads) { return MakeCpuDevice(threads, BestIsa()); }

}  // namespace moe
