// One MoE layer on the caller's buffers: parameters, what forward keeps for backward.
#ifndef MOE_CAPI_LAYER_STATE_H_
#define MOE_CAPI_LAYER_STATE_H_

#include <memory>
#include <utility>
#include <vector>

#include "capi/engine_state.h"
#include "core/moe/moe_layer.h"

namespace moe::capi {

class LayerState {
 public:
  static absl::StatusOr<std::unique_ptr<LayerState>> Make(const EngineState& engine, std::shared_ptr<Communicator> group);

  // Collective, arguments checked. `first_token`: of this rank among the tokens of all ranks.
  absl::Status Forward(const void* x, int64_t tokens, const uint8_t* valid, int64_t first_token, void* y);
  absl::Status Backward(const void* dy, double aux_loss_scale, void* dx);
  absl::Status Routing(int32_t* ids, void* weights) const;

  // Of the last forward, summed over the ranks.
  const RoutingSums& sums() const { return sums_; }
  RoutingLosses Losses() const { return ComputeRoutingLosses(layer_->spec().gate, layer_->spec().top_k, sums_); }
  int64_t tokens() const { return has_forward_ ? saved_.x_TD.dim(0) : 0; }
  bool has_forward() const { return has_forward_; }
  bool can_backward() const { return can_backward_; }

  ParamStore* params() { return store_.get(); }
  const std::vector<std::pair<Param*, const ParamPiece*>>& pieces() const { return pieces_; }
  const std::shared_ptr<Communicator>& group() const { return group_; }

 private:
  LayerState(Device* device, uint64_t seed, std::shared_ptr<Communicator> group) : device_(device), seed_(seed), group_(std::move(group)), arena_(device) {}
  ModuleContext Context();

  Device* const device_;
  const uint64_t seed_;
  const std::shared_ptr<Communicator> group_;
  std::unique_ptr<MoeLayer> layer_;
  std::unique_ptr<ParamStore> store_;
  std::vector<std::pair<Param*, const ParamPiece*>> pieces_;
  Arena arena_;
  // Of the last forward.
  MoeSaved saved_;
  RoutingSums sums_;
  int64_t first_token_ = 0;
  uint64_t calls_ = 0;
  bool has_forward_ = false, can_backward_ = false;
};

}  // namespace moe::capi
#endif  // MOE_CAPI_LAYER_STATE_H_
