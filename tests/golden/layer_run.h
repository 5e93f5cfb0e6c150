// Runs one golden case through MoeLayer on threads as ranks, its tokens and its experts shared out as a layout says, and puts
// the parts together again.
#ifndef MOE_TESTS_GOLDEN_LAYER_RUN_H_
#define MOE_TESTS_GOLDEN_LAYER_RUN_H_

#include <map>
#include <string>
#include <vector>

#include "tests/golden/layer_case.h"

namespace moe::testing {

enum class ExpertsOn {
  kEveryRank,   // each rank holds all of them: no exchange, gradients are summed
  kBlocks,      // equal blocks, as experts/partition/block_partition
  kRoundRobin,  // unequal when the ranks do not divide the experts
};

struct Layout {
  std::string name;
  std::vector<int64_t> tokens;   // of each rank; empty: one rank has all
  ExpertsOn experts = ExpertsOn::kEveryRank;
  int64_t etp = 1;               // so many neighbours share the inner width of each expert; `experts` speaks of such groups
};

struct LayerResult {
  std::vector<double> y_TD, weights_TK;
  std::vector<int32_t> ids_TK;            // after dropping
  std::vector<int64_t> expert_count;      // before dropping
  int64_t dropped = 0;
  std::map<std::string, double> aux;      // "switch", "hf", "z"
  // "grad.x_TD", "grad.router_ED", "grad.w1_EFD", ... of sum(y dy); "aux.KIND.grad.x_TD", "aux.KIND.grad.router_ED".
  std::map<std::string, std::vector<double>> grad;
};

absl::StatusOr<LayerResult> RunLayer(const LayerCase& c, const Machine& machine, const Layout& layout);

}  // namespace moe::testing
#endif  // MOE_TESTS_GOLDEN_LAYER_RUN_H_
