// Staging buffers of operations, kept from one operation to the next: fresh memory costs a page fault per 4 KiB, which
// for large reductions is more than the arithmetic. Guarded by the engine's lock.
#ifndef MOE_TRANSPORT_SCRATCH_H_
#define MOE_TRANSPORT_SCRATCH_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace moe {

class ScratchPool {
 public:
  struct Buffer {
    std::unique_ptr<char[]> data;
    int64_t bytes = 0;
  };

  Buffer Get(int64_t bytes) {
    size_t best = free_.size();
    for (size_t i = 0; i < free_.size(); ++i) {
      if (free_[i].bytes >= bytes && (best == free_.size() || free_[i].bytes < free_[best].bytes)) best = i;
    }
    if (best < free_.size() && free_[best].bytes <= 4 * bytes + 4096) {
      Buffer b = std::move(free_[best]);
      free_[best] = std::move(free_.back());
      free_.pop_back();
      return b;
    }
    return {std::unique_ptr<char[]>(new char[bytes]), bytes};
  }
  void Put(Buffer buffer) {
    if (free_.size() >= kKept) free_.erase(free_.begin());
    free_.push_back(std::move(buffer));
  }

 private:
  static constexpr size_t kKept = 8;
  std::vector<Buffer> free_;  // oldest first
};

}  // namespace moe
#endif  // MOE_TRANSPORT_SCRATCH_H_
