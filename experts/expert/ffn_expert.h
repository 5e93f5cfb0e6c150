// The feed-forward experts of one layer: y = W2 act(W1 x [, W3 x]) with optional biases, all local experts at once.
//   swiglu: act(gate, up) = silu(gate) * up   (arXiv 2002.05202);  gelu, gelu_tanh, relu: one input matrix.
#ifndef MOE_EXPERTS_EXPERT_FFN_EXPERT_H_
#define MOE_EXPERTS_EXPERT_FFN_EXPERT_H_

#include <memory>

#include "core/moe/expert.h"

namespace moe {

absl::StatusOr<std::unique_ptr<Expert>> MakeFfnExpert(const ExpertSpec& spec, Activation activation);

}  // namespace moe
#endif  // MOE_EXPERTS_EXPERT_FFN_EXPERT_H_
