// Switch Transformer's gate (arXiv 2101.03961): p = softmax(x W^T); the one expert with the largest p; w = p, not
// renormalised, so that the router gets a gradient. In training the router may see x * U(1 - jitter, 1 + jitter); the experts
// see x as it is.
#ifndef MOE_EXPERTS_GATE_SWITCH_GATE_H_
#define MOE_EXPERTS_GATE_SWITCH_GATE_H_

#include <memory>

#include "core/moe/gate.h"

namespace moe {

absl::StatusOr<std::unique_ptr<Gate>> MakeSwitchGate(const GateSpec& spec);

}  // namespace moe
#endif  // MOE_EXPERTS_GATE_SWITCH_GATE_H_
