// AdamW and SGD over the flat buffers of a ParamStore.
#ifndef MOE_CORE_TRAIN_OPTIMIZER_H_
#define MOE_CORE_TRAIN_OPTIMIZER_H_

#include <array>
#include <memory>
#include <vector>

#include "core/config/config.pb.h"
#include "core/moe/parameter.h"

namespace moe {

class Optimizer {
 public:
  // `store` is materialised and outlives the optimizer. State starts at zero.
  static absl::StatusOr<std::unique_ptr<Optimizer>> Make(const config::OptimizerConfig& config, int64_t total_steps, ParamStore* store);

  // Of the gradients that this rank answers for (those of a kind of which it is the owner and that count, Param::counted: over all
  // ranks that is each element of the model once) the sum of squares, or the largest |element| with clip_norm_type inf. Over ranks these
  // are added up, or the largest taken; then the norm is the root, or the value itself.
  using Owner = std::array<bool, kNumParamKinds>;
  absl::StatusOr<double> GradNormPart(const Owner& owner);
  bool infinity_norm() const { return config_.clip_norm_type() == "inf"; }
  // One update with gradients scaled by min(1, clip_norm / (grad_norm + 1e-6)). Returns the learning rate that was used.
  absl::StatusOr<double> Step(double grad_norm);

  int64_t step() const { return step_; }   // updates done
  void set_step(int64_t step) { step_ = step; }

  // State tensors in the shape of the flat buffers: names "m", "v" (adamw), "momentum" (sgd with momentum).
  struct State { const char* name; TensorView flat[kNumParamKinds]; };   // by ParamKind
  const std::vector<State>& state() const { return state_; }
  // The part of a state that belongs to a parameter, in the parameter's shape.
  TensorView StateOf(const State& state, const Param& param) const;
  int64_t state_bytes() const;

 private:
  struct Segment { ParamKind kind; int64_t begin, size; bool decay, counted; };
  Optimizer(const config::OptimizerConfig& c, int64_t total, ParamStore* store) : config_(c), total_steps_(total), store_(store) {}

  config::OptimizerConfig config_;
  int64_t total_steps_;
  ParamStore* store_;
  std::vector<Segment> segments_;   // runs of neighbours that are treated alike
  std::vector<State> state_;
  std::vector<Buffer> memory_;
  int64_t step_ = 0;
};

}  // namespace moe
#endif  // MOE_CORE_TRAIN_OPTIMIZER_H_
