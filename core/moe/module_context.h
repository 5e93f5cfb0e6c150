// What one call of a module (a gate, experts, an attention block) works with.
#ifndef MOE_CORE_MOE_MODULE_CONTEXT_H_
#define MOE_CORE_MOE_MODULE_CONTEXT_H_

#include <functional>
#include <utility>
#include <vector>

#include "core/device/arena.h"

namespace moe {

// Consecutive local rows that are consecutive tokens of the global batch.
struct TokenRun { int64_t rows = 0, first_token = 0; };

struct ModuleContext {
  Device* device = nullptr;
  Arena* arena = nullptr;      // what must live until backward is made here
  bool training = false;
  uint64_t noise_key = 0;      // of this call's random numbers: core/base/random.h, index = global token * stride + element
  int64_t first_token = 0;     // global index of the first row, so that noise does not depend on the layout
  // The rows as runs of tokens, where they are more than one run (context parallelism); null: one run from first_token.
  const std::vector<TokenRun>* token_runs = nullptr;
  // Backward in two halves: gradients of weights are put here as work for later instead of being computed. What the work reads
  // (saved activations, gradients of outputs) stays unchanged until then: modules must not reuse it in place, callers must not
  // rewind the arena. Null: everything at once.
  std::vector<std::function<absl::Status()>>* later = nullptr;
};

// The gradient of a weight: now, or later.
template <typename F>
absl::Status WeightGrad(const ModuleContext& ctx, F f) {
  if (ctx.later == nullptr) return f();
  ctx.later->push_back(std::move(f));
  return absl::OkStatus();
}

// y[t, i] = low + (high - low) * uniform random number of (global token of row t, i): the same for a token in every layout.
absl::Status TokenNoise(const ModuleContext& ctx, double low, double high, Out y_TD);

}  // namespace moe
#endif  // MOE_CORE_MOE_MODULE_CONTEXT_H_
