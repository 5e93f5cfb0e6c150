// Memory of devices, copies to and from the host, what a device says of itself.
#include <cstring>

#include "core/device/tests/harness.h"

// A sanitizer's allocator would end the test that asks for too much, unless told that null will do.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }

namespace moe::testing {
namespace {

class Memory : public DeviceTest {};
MOE_INSTANTIATE_DEVICE_TEST(Memory);

TEST_P(Memory, AllocateIsAlignedAndCounted) {
  for (size_t i = 1; i < num_devices(); ++i) {
    Device* d = device(i);
    const int64_t before = d->allocated_bytes();
    std::vector<void*> blocks;
    int64_t sum = 0;
    for (int64_t bytes : {0, 1, 63, 64, 65, 1000, 3 << 20}) {
      absl::StatusOr<void*> p = d->Allocate(bytes);
      ASSERT_TRUE(p.ok()) << p.status();
      EXPECT_NE(*p, nullptr);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(*p) % 64, 0u);
      std::memset(*p, 1, bytes);
      blocks.push_back(*p);
      sum += bytes;
      EXPECT_EQ(d->allocated_bytes(), before + sum);
    }
    const int64_t peak = d->peak_allocated_bytes();
    EXPECT_GE(peak, before + sum);
    for (void* p : blocks) d->Free(p);
    d->Free(nullptr);
    EXPECT_EQ(d->allocated_bytes(), before);
    EXPECT_EQ(d->peak_allocated_bytes(), peak);
  }
}

TEST_P(Memory, AllocateTooMuchNamesTheSize) {
  for (size_t i = 1; i < num_devices(); ++i) {
    for (int64_t bytes : {int64_t{1} << 60, INT64_MAX}) {
      const absl::StatusOr<void*> p = device(i)->Allocate(bytes);
      EXPECT_EQ(p.status().code(), absl::StatusCode::kResourceExhausted) << p.status();
      EXPECT_NE(p.status().message().find(absl::StrCat(bytes)), std::string::npos) << p.status();
    }
    EXPECT_EQ(device(i)->Allocate(-1).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_P(Memory, BufferFrees) {
  for (size_t i = 1; i < num_devices(); ++i) {
    const int64_t before = device(i)->allocated_bytes();
    {
      absl::StatusOr<Buffer> a = Buffer::Make(device(i), 100);
      ASSERT_TRUE(a.ok());
      Buffer b = *std::move(a);
      EXPECT_EQ(b.bytes(), 100);
      EXPECT_EQ(device(i)->allocated_bytes(), before + 100);
    }
    EXPECT_EQ(device(i)->allocated_bytes(), before);
  }
}

TEST_P(Memory, CopiesWithTheHost) {
  for (size_t i = 1; i < num_devices(); ++i) {
    for (int64_t n : OddSizes()) {
      std::vector<int32_t> host(n + 1, 7), back(n + 1, -1);
      for (int64_t j = 0; j < n; ++j) host[j] = static_cast<int32_t>(j * j);
      absl::StatusOr<Buffer> b = Buffer::Make(device(i), n * 4);
      ASSERT_TRUE(b.ok());
      const TensorView t(b->data(), DType::kI32, {n});
      EXPECT_OK(device(i)->CopyFromHost(t, host.data()));
      EXPECT_OK(device(i)->CopyToHost(back.data(), t));
      EXPECT_OK(device(i)->Synchronize());
      EXPECT_EQ(back[n], -1);
      back[n] = 7;
      EXPECT_EQ(host, back);
    }
    EXPECT_OK(device(i)->CopyFromHost(TensorView(nullptr, DType::kF32, {0, 3}), nullptr));   // nothing to copy
  }
}

TEST_P(Memory, CopiesOfPaddedRowsAreRefused) {
  pad_ = 2;
  Operand x = Random({3, 4});
  std::vector<double> host(12);
  ExpectRefused([&](Device* d, const View& on) { return d->CopyToHost(host.data(), on(x)); }, {"CopyToHost", "float32[3,4]", "contiguous"});
  ExpectRefused([&](Device* d, const View& on) { return d->CopyFromHost(on(x), host.data()); }, {"CopyFromHost", "float32[3,4]", "contiguous"});
}

TEST_P(Memory, SaysWhatItIs) {
  for (size_t i = 1; i < num_devices(); ++i) {
    EXPECT_FALSE(device(i)->name().empty());
    EXPECT_FALSE(device(i)->Describe().empty());
    EXPECT_GE(device(i)->num_threads(), 1);
    EXPECT_TRUE(device(i)->Supports(dtype()));
    EXPECT_FALSE(device(i)->Supports(DType::kI32));
  }
}

}  // namespace
}  // namespace moe::testing
