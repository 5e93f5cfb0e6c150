// Memory of the host. The size of a block stands in the cache line before it, so that Free can count.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "core/device/check.h"
#include "core/device/reference/reference_device.h"

namespace moe {
namespace {

constexpr int64_t kAlign = 64;

// Twice the number of multiply-adds in ChainOfFmas.
constexpr int kLanes = 64;
constexpr int64_t kRounds = 20000;
// Independent chains, so that the speed of the units is measured and not the latency of one.
float ChainOfFmas(float seed) {
  float acc[kLanes];
  for (int i = 0; i < kLanes; ++i) acc[i] = seed + static_cast<float>(i);
  for (int64_t r = 0; r < kRounds; ++r)
    for (int i = 0; i < kLanes; ++i) acc[i] = acc[i] * 0.999f + 0.001f;
  float sum = 0;
  for (float a : acc) sum += a;
  return sum;
}

}  // namespace

absl::StatusOr<void*> ReferenceDevice::Allocate(int64_t bytes) {
  if (bytes < 0) return InvalidArgument("Allocate: ", bytes, " bytes, wanted 0 or more");
  void* block = bytes > INT64_MAX - 2 * kAlign ? nullptr : std::aligned_alloc(kAlign, (bytes + 2 * kAlign - 1) / kAlign * kAlign);
  if (block == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("Allocate: no memory for ", bytes, " bytes; ", allocated_,
                                                     " bytes of this device are in use. Remedy: a smaller micro-batch, sequence length or model"));
  }
  std::memcpy(block, &bytes, sizeof(bytes));
  allocated_ += bytes;
  peak_ = std::max(peak_, allocated_);
  return static_cast<char*>(block) + kAlign;
}

void ReferenceDevice::Free(void* data) {
  if (data == nullptr) return;
  char* block = static_cast<char*>(data) - kAlign;
  int64_t bytes;
  std::memcpy(&bytes, block, sizeof(bytes));
  allocated_ -= bytes;
  std::free(block);
}

absl::Status ReferenceDevice::CopyToHost(void* dst, In src) {
  MOE_RETURN_IF_ERROR(CheckCopyHost("CopyToHost", src, dst));
  if (src.size() > 0) std::memcpy(dst, src.data(), src.bytes());
  return absl::OkStatus();
}

absl::Status ReferenceDevice::CopyFromHost(Out dst, const void* src) {
  MOE_RETURN_IF_ERROR(CheckCopyHost("CopyFromHost", dst, src));
  if (dst.size() > 0) std::memcpy(dst.data(), src, dst.bytes());
  return absl::OkStatus();
}

absl::StatusOr<double> ReferenceDevice::MeasurePeakGflops() {
  using Clock = std::chrono::steady_clock;
  double best = 0;
  volatile float keep = 0.5f;   // the result is used, or the compiler would drop the loop
  for (int run = 0; run < 5; ++run) {
    const auto start = Clock::now();
    keep = ChainOfFmas(keep);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (seconds > 0) best = std::max(best, 2e-9 * kLanes * kRounds / seconds);
  }
  return best;
}

std::unique_ptr<Device> MakeReferenceDevice() { return std::make_unique<ReferenceDevice>(); }

}  // namespace moe
