#include "core/model/rotary.h"

#include <algorithm>
#include <cmath>

#include "core/device/host_copy.h"

namespace moe {
namespace {

// Values that stay on the device, outside of any arena.
absl::StatusOr<Buffer> Keep(Device* device, DType dtype, const std::vector<double>& values) {
  Arena scratch(device);
  const int64_t n = static_cast<int64_t>(values.size());
  MOE_ASSIGN_OR_RETURN(const TensorView wide, ToDevice(&scratch, DType::kF64, {n}, values.data()));
  MOE_ASSIGN_OR_RETURN(Buffer kept, Buffer::Make(device, n * SizeOf(dtype)));
  MOE_RETURN_IF_ERROR(device->Copy(wide, TensorView(kept.data(), dtype, {n})));
  return kept;
}

}  // namespace

int64_t HeadDim(const config::ModelConfig& c) { return c.head_dim() ? c.head_dim() : c.d_model() / c.num_heads(); }

absl::StatusOr<RotaryTables> RotaryCache::Tables(int64_t seq) {
  if (seq > length_) {
    const int64_t length = std::max(seq, usual_);
    std::vector<double> cosines(length * half_), sines(length * half_);
    for (int64_t p = 0; p < length; ++p) {
      for (int64_t i = 0; i < half_; ++i) {
        const double angle = static_cast<double>(p) * std::pow(theta_, -static_cast<double>(i) / static_cast<double>(half_));
        cosines[p * half_ + i] = std::cos(angle);
        sines[p * half_ + i] = std::sin(angle);
      }
    }
    MOE_ASSIGN_OR_RETURN(cos_, Keep(device_, dtype_, cosines));
    MOE_ASSIGN_OR_RETURN(sin_, Keep(device_, dtype_, sines));
    length_ = length;
  }
  RotaryTables r;
  r.cos_PC = TensorView(cos_.data(), dtype_, {length_, half_});
  r.sin_PC = TensorView(sin_.data(), dtype_, {length_, half_});
  return r;
}

}  // namespace moe
