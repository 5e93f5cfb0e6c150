// Making a device, what it says of itself, and its measure of the machine.
#include "core/device/cpu/cpu_device.h"

#include <chrono>
#include <cstring>

#include "gtest/gtest.h"

namespace moe {
namespace {

TEST(CpuDevice, RefusesNoThreads) {
  const auto device = MakeCpuDevice(0);
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(device.status().message().find("threads is 0"), std::string::npos) << device.status();
}

TEST(CpuDevice, RefusesWhatTheMachineLacks) {
  for (Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512}) {
    bool available = false;
    for (Isa have : AvailableIsas()) available = available || have == isa;
    EXPECT_EQ(MakeCpuDevice(1, isa).ok(), available) << Name(isa);
  }
}

TEST(CpuDevice, DescribesItself) {
  for (Isa isa : AvailableIsas()) {
    auto device = *MakeCpuDevice(2, isa);
    EXPECT_EQ(device->name(), "cpu");
    EXPECT_EQ(device->num_threads(), 2);
    EXPECT_NE(device->Describe().find(Name(isa)), std::string::npos) << device->Describe();
    EXPECT_NE(device->Describe().find("2 threads"), std::string::npos) << device->Describe();
  }
}

// No product is faster than the limit, and the limit is no fairy tale: a product that fits in the cache comes near it.
TEST(CpuDevice, PeakIsALimit) {
  auto device = *MakeCpuDevice(1);
  const int64_t n = 384;
  auto memory = *Buffer::Make(device.get(), 3 * n * n * 4);
  std::memset(memory.data(), 0, memory.bytes());
  float* p = static_cast<float*>(memory.data());
  const TensorView a(p, DType::kF32, {n, n}), b(p + n * n, DType::kF32, {n, n}), c(p + 2 * n * n, DType::kF32, {n, n});
  // The machine is shared: a disturbed pair of measurements is taken again.
  double fraction = 0;
  for (int attempt = 0; attempt < 20 && !(fraction > 0.3 && fraction < 1.05); ++attempt) {
    const double peak = *device->MeasurePeakGflops();
    double best = 1e9;
    for (int run = 0; run < 20; ++run) {
      const auto start = std::chrono::steady_clock::now();
      ASSERT_TRUE(device->Gemm(false, false, 1, a, b, 0, c).ok());
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    fraction = 2e-9 * n * n * n / best / peak;
  }
  EXPECT_GT(fraction, 0.3);
  EXPECT_LT(fraction, 1.05);
}

TEST(CpuDevice, CountsLargeBlocksOfMemory) {
  auto device = *MakeCpuDevice(1);
  const int64_t bytes = (int64_t{9} << 20) + 4;
  void* p = *device->Allocate(bytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u);
  std::memset(p, 1, bytes);
  EXPECT_EQ(device->allocated_bytes(), bytes);
  device->Free(p);
  EXPECT_EQ(device->allocated_bytes(), 0);
  EXPECT_EQ(device->peak_allocated_bytes(), bytes);
}

}  // namespace
}  // namespace moe
