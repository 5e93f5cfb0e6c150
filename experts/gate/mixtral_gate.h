// Mixtral's gate (Hugging Face transformers, modeling_mixtral; arXiv 2401.04088):
//   p = softmax(x W^T) over all experts; the K largest; w = p / sum of the K, always.
#ifndef MOE_EXPERTS_GATE_MIXTRAL_GATE_H_
#define MOE_EXPERTS_GATE_MIXTRAL_GATE_H_

#include <memory>
#include <string>

#include "core/moe/gate.h"

namespace moe {

// What to tell the user who chooses top_k 1.
std::string MixtralTopOneWarning();

absl::StatusOr<std::unique_ptr<Gate>> MakeMixtralGate(const GateSpec& spec);

}  // namespace moe
#endif  // MOE_EXPERTS_GATE_MIXTRAL_GATE_H_
