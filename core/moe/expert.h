// The local experts of one layer, computed as one grouped operation. Implementations: experts/expert/*.
#ifndef MOE_CORE_MOE_EXPERT_H_
#define MOE_CORE_MOE_EXPERT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/moe/gate.h"

namespace moe {

struct ExpertSpec {
  int64_t d_model = 0, d_hidden = 0, num_global_experts = 0;
  std::vector<int64_t> local_experts;   // global ids, ascending: e of them
  // Expert tensor parallelism: this rank holds inner units [F * etp_rank / etp_size, F * (etp_rank + 1) / etp_size) of each
  // expert: rows of w1 and w3, columns of w2. F must be divisible. Outputs are partial sums: the caller adds those of all ranks
  // in rank order. The output's bias is held by all (counted by the first), added by the first.
  int64_t etp_rank = 0, etp_size = 1;
  double init_stddev_in = 0, init_stddev_out = 0;
  // Kind of the parameters: expert, or dense for a dense feed-forward layer (one "expert", every token).
  ParamKind param_kind = ParamKind::kExpert;
  config::ExpertConfig config;
};

// What forward keeps for backward.
struct ExpertSaved {
  TensorView h_RH;   // before the activation
  TensorView a_RF;   // after it
};

class Expert {
 public:
  virtual ~Expert() = default;
  virtual std::string name() const = 0;
  // Names of pieces: with expert kind "<prefix>.experts.<id>.{w1,w2,w3}.weight" (+ ".bias"), with dense kind
  // "<prefix>.{w1,w2,w3}.weight". w1 [F,D] (gate, or the only input matrix), w3 [F,D] (up), w2 [D,F].
  virtual absl::Status DeclareParams(ParamStore* store, const std::string& prefix) = 0;
  // Rows offsets[i] .. offsets[i+1] belong to local expert i. Any R >= 0.
  virtual absl::Status Forward(const ModuleContext& ctx, In x_RD, absl::Span<const int64_t> offsets, ExpertSaved* saved, Out y_RD) = 0;
  // Adds to the parameters' gradients; dx is overwritten.
  virtual absl::Status Backward(const ModuleContext& ctx, In x_RD, absl::Span<const int64_t> offsets, const ExpertSaved& saved, In dy_RD, Out dx_RD) = 0;
};

}  // namespace moe
#endif  // MOE_CORE_MOE_EXPERT_H_
