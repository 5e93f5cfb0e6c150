// Activations of a step: a bump allocator over device memory. Reset gives everything back at once and keeps the
// memory, so that after the first steps nothing is allocated any more.
#ifndef MOE_CORE_DEVICE_ARENA_H_
#define MOE_CORE_DEVICE_ARENA_H_

#include <vector>

#include "core/device/device.h"

namespace moe {

class Arena {
 public:
  explicit Arena(Device* device) : device_(device) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  Device* device() const { return device_; }
  // Uninitialised memory, 64-byte aligned, valid until Reset or Rewind past it. Empty shapes are fine.
  absl::StatusOr<TensorView> Make(DType dtype, const std::vector<int64_t>& shape);

  // A mark to go back to: what was made after it is given back.
  struct Mark { size_t chunk = 0; int64_t used = 0; };
  Mark Position() const { return {chunk_, used_}; }
  void Rewind(Mark m) { chunk_ = m.chunk; used_ = m.used; }
  // Gives everything back; several chunks are replaced by one that holds them all, so that the next round fits.
  absl::Status Reset();

  int64_t capacity() const;

 private:
  Device* device_;
  std::vector<Buffer> chunks_;
  size_t chunk_ = 0;    // chunk in use
  int64_t used_ = 0;    // bytes of it in use
};

}  // namespace moe
#endif  // MOE_CORE_DEVICE_ARENA_H_
