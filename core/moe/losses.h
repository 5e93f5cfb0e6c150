// Balancing and z losses over the whole global batch, whatever the layout and the split into micro-batches.
//
//   switch: per layer E / (K T^2) sum_e n_e sum_t p_te, mean over the layers   (arXiv 2101.03961, eq. 4-6; 1 when balanced)
//   hf:     all layers' rows pooled, R = L T: E sum_e f_e P_e, f_e = routes to e / R, P_e = mean p_e   (K when balanced)
//   z:      mean over tokens and layers of logsumexp(logits)^2                 (arXiv 2202.08906)
// n_e counts routes of valid tokens before anything is dropped. No gradient flows through n_e.
#ifndef MOE_CORE_MOE_LOSSES_H_
#define MOE_CORE_MOE_LOSSES_H_

#include <cstdint>
#include <vector>

#include "core/comm/communicator.h"
#include "core/config/config.pb.h"

namespace moe {

// What one step has seen, first of this rank, after Reduce of all ranks. Layers are MoE layers.
struct RoutingSums {
  RoutingSums() = default;
  RoutingSums(int64_t layers, int64_t experts) : layers(layers), experts(experts), count(layers * experts, 0), prob(layers * experts, 0.0), lse2(layers, 0.0) {}
  int64_t layers = 0, experts = 0;
  int64_t tokens = 0;            // valid tokens (the same in every layer)
  int64_t dropped = 0;           // routes dropped by capacity, all layers
  std::vector<int64_t> count;    // [layers, E] n_e
  std::vector<double> prob;      // [layers, E] sum_t p_te
  std::vector<double> lse2;      // [layers] sum_t logsumexp^2
  // Collective over the ranks that split the batch (null: one rank).
  absl::Status Reduce(Communicator* batch);
};

struct RoutingLosses {
  double aux = 0, z = 0;               // without coefficients
  // d(aux_loss_coef * aux + ...)/d p_te for every row of layer l is aux_gradient[l * E + e]; absent (empty) when zero.
  std::vector<double> aux_gradient;
  double z_coef = 0;                   // what Gate::Backward takes: 2 * z_loss_coef / (T L)
};

// 2 * z_loss_coef / (T L): known before any routing.
double ZCoefficient(const config::GateConfig& config, int64_t tokens, int64_t layers);
// From reduced sums.
RoutingLosses ComputeRoutingLosses(const config::GateConfig& config, int64_t top_k, const RoutingSums& sums);

}  // namespace moe
#endif  // MOE_CORE_MOE_LOSSES_H_
