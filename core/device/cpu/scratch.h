// Working memory of the workers, a block each, on cache lines of its own. It only grows, so a training step allocates
// nothing after the first.
#ifndef MOE_CORE_DEVICE_CPU_SCRATCH_H_
#define MOE_CORE_DEVICE_CPU_SCRATCH_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "core/base/status.h"

namespace moe {

class Scratch {
 public:
  explicit Scratch(int workers) : blocks_(workers) {}

  // Every worker has at least `floats` from now on; what the blocks held is lost.
  absl::Status Reserve(int64_t floats) {
    if (floats <= floats_) return absl::OkStatus();
    constexpr int64_t kLine = 64;
    const int64_t bytes = (floats * static_cast<int64_t>(sizeof(float)) + kLine - 1) / kLine * kLine;
    for (Block& block : blocks_) {
      block.reset(static_cast<float*>(std::aligned_alloc(kLine, bytes)));
      if (block == nullptr) {
        floats_ = 0;
        return absl::ResourceExhaustedError(absl::StrCat("cpu device: no memory for ", blocks_.size(), " workers' scratch of ", bytes, " bytes each"));
      }
    }
    floats_ = floats;
    return absl::OkStatus();
  }
  float* of(int worker) { return blocks_[worker].get(); }

 private:
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  using Block = std::unique_ptr<float[], Free>;
  int64_t floats_ = 0;
  std::vector<Block> blocks_;
};

}  // namespace moe
#endif  // MOE_CORE_DEVICE_CPU_SCRATCH_H_
