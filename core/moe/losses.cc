#include "core/moe/losses.h"

namespace moe {

absl::Status RoutingSums::Reduce(Communicator* batch) {
  if (batch == nullptr || batch->size() == 1) return absl::OkStatus();
  std::vector<int64_t> ints = {tokens, dropped};
  ints.insert(ints.end(), count.begin(), count.end());
  std::vector<double> reals = lse2;
  reals.insert(reals.end(), prob.begin(), prob.end());
  MOE_RETURN_IF_ERROR(AllReduce(batch->For("routing counts"), ints.data(), static_cast<int64_t>(ints.size()), DType::kI64));
  MOE_RETURN_IF_ERROR(AllReduce(batch->For("routing sums"), reals.data(), static_cast<int64_t>(reals.size()), DType::kF64));
  tokens = ints[0];
  dropped = ints[1];
  count.assign(ints.begin() + 2, ints.end());
  lse2.assign(reals.begin(), reals.begin() + layers);
  prob.assign(reals.begin() + layers, reals.end());
  return absl::OkStatus();
}

double ZCoefficient(const config::GateConfig& config, int64_t tokens, int64_t layers) {
  return tokens > 0 && layers > 0 ? 2.0 * config.z_loss_coef() / (static_cast<double>(tokens) * static_cast<double>(layers)) : 0;
}

RoutingLosses ComputeRoutingLosses(const config::GateConfig& config, int64_t top_k, const RoutingSums& s) {
  RoutingLosses out;
  if (s.tokens == 0 || s.layers == 0) return out;
  const double tokens = static_cast<double>(s.tokens), layers = static_cast<double>(s.layers);
  const double experts = static_cast<double>(s.experts), k = static_cast<double>(top_k);
  for (double v : s.lse2) out.z += v / (tokens * layers);
  out.z_coef = ZCoefficient(config, s.tokens, s.layers);

  if (config.aux_loss() == "none") return out;
  out.aux_gradient.resize(s.layers * s.experts);
  if (config.aux_loss() == "switch") {
    const double f = experts / (k * tokens * tokens * layers);
    for (size_t i = 0; i < s.count.size(); ++i) {
      const double n = static_cast<double>(s.count[i]);
      out.aux += f * n * s.prob[i];
      out.aux_gradient[i] = config.aux_loss_coef() * f * n;
    }
  } else {  // hf
    const double rows = tokens * layers, f = experts / (rows * rows);
    for (int64_t e = 0; e < s.experts; ++e) {
      double n = 0, p = 0;
      for (int64_t l = 0; l < s.layers; ++l) {
        n += static_cast<double>(s.count[l * s.experts + e]);
        p += s.prob[l * s.experts + e];
      }
      out.aux += f * n * p;
      for (int64_t l = 0; l < s.layers; ++l) out.aux_gradient[l * s.experts + e] = config.aux_loss_coef() * f * n;
    }
  }
  if (config.aux_loss_coef() == 0) out.aux_gradient.clear();
  return out;
}

}  // namespace moe
