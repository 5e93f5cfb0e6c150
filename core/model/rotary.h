// Tables of rotary positions, and what all blocks of a pass get besides their input.
#ifndef MOE_CORE_MODEL_ROTARY_H_
#define MOE_CORE_MODEL_ROTARY_H_

#include "core/config/config.pb.h"
#include "core/model/token_layout.h"

namespace moe {

// Size of one head: head_dim, or d_model / num_heads.
int64_t HeadDim(const config::ModelConfig& c);

// Cosines and sines of positions 0 .. P-1: cos, sin [P, h/2] (arXiv 2104.09864).
struct RotaryTables { TensorView cos_PC, sin_PC; };

// Made once, grown when a longer sequence comes.
class RotaryCache {
 public:
  RotaryCache(Device* device, DType dtype, const config::Config& c) : device_(device), dtype_(dtype), half_(HeadDim(c.model()) / 2), usual_(c.train().seq_len()), theta_(c.model().rope_theta()) {}
  // Of at least `seq` positions.
  absl::StatusOr<RotaryTables> Tables(int64_t seq);

 private:
  Device* device_;
  DType dtype_;
  int64_t half_, usual_;
  double theta_;
  Buffer cos_, sin_;
  int64_t length_ = 0;
};

struct PassInputs {
  const TokenLayout* layout = nullptr;
  DeviceLayout on_device;
  RotaryTables rotary;
};

}  // namespace moe
#endif  // MOE_CORE_MODEL_ROTARY_H_
