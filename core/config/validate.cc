#include "core/config/validate.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "core/config/config_io.h"
#include "core/topology/mesh.h"

namespace moe {
namespace {

absl::Status CheckName(const char* field, const std::string& value, const std::vector<std::string>& names) {
  if (std::find(names.begin(), names.end(), value) != names.end()) return absl::OkStatus();
  return InvalidArgument(field, " is '", value, "'; allowed: ", absl::StrJoin(names, ", "));
}

absl::Status CheckModel(const config::Config& c) {
  const config::ModelConfig& m = c.model();
  if (m.top_k() > m.num_global_experts())
    return InvalidArgument("model.top_k is ", m.top_k(), ", must be at most model.num_global_experts, which is ", m.num_global_experts());
  if (m.num_heads() % m.num_kv_heads() != 0)
    return InvalidArgument("model.num_heads is ", m.num_heads(), ", not divisible by model.num_kv_heads, which is ", m.num_kv_heads());
  if (m.head_dim() == 0 && m.d_model() % m.num_heads() != 0)
    return InvalidArgument("model.d_model is ", m.d_model(), ", not divisible by model.num_heads, which is ", m.num_heads(), "; change one of them or set model.head_dim");
  const int64_t head = m.head_dim() ? m.head_dim() : m.d_model() / m.num_heads();
  if (head % 2 != 0) return InvalidArgument("the size of a head is ", head, " (model.head_dim, or model.d_model / model.num_heads); rotary positions need an even one");
  if (m.num_dense_layers() > m.num_layers())
    return InvalidArgument("model.num_dense_layers is ", m.num_dense_layers(), ", must be at most model.num_layers, which is ", m.num_layers());
  if (m.dtype() == "float64" && c.device() != "reference") return InvalidArgument("model.dtype is float64, which needs device=reference (device is ", c.device(), ")");
  if (c.gate().kind() == "switch" && m.top_k() != 1) return InvalidArgument("model.top_k is ", m.top_k(), "; gate.kind=switch routes each token to one expert: set model.top_k=1");
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateConfig(const config::Config& c, const ModuleNames& names) {
  MOE_RETURN_IF_ERROR(CheckConfigRanges(c));
  MOE_RETURN_IF_ERROR(CheckName("gate.kind", c.gate().kind(), names.gates));
  MOE_RETURN_IF_ERROR(CheckName("expert.kind", c.expert().kind(), names.experts));
  MOE_RETURN_IF_ERROR(CheckName("partition.kind", c.partition().kind(), names.partitions));
  MOE_RETURN_IF_ERROR(CheckModel(c));
  const std::pair<const char*, int32_t> later[] = {{"mesh.tp", c.mesh().tp()}, {"mesh.pp", c.mesh().pp()}, {"mesh.cp", c.mesh().cp()}, {"mesh.etp", c.mesh().etp()}};
  for (const auto& [field, value] : later)
    if (value > 1) return absl::UnimplementedError(absl::StrCat(field, " is ", value, "; this version trains with data and expert parallelism only: leave it at 0 or 1"));
  return MeshFromConfig(c.ranks(), c.mesh(), c.model().num_global_experts()).status();
}

}  // namespace moe
