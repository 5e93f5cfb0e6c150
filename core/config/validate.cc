#include "core/config/validate.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_join.h"
#include "core/config/config_io.h"
#include "core/config/fields.h"
#include "core/topology/mesh.h"

namespace moe {
namespace {

class Problems {
 public:
  void Add(const absl::Status& s) {
    if (!s.ok() && std::find(all_.begin(), all_.end(), s) == all_.end()) all_.push_back(s);
  }
  absl::Status Status() const {
    if (all_.empty()) return absl::OkStatus();
    const bool later = std::all_of(all_.begin(), all_.end(), [](const absl::Status& s) { return s.code() == absl::StatusCode::kUnimplemented; });
    const auto text = [](std::string* out, const absl::Status& s) { out->append(std::string(s.message())); };
    return absl::Status(later ? absl::StatusCode::kUnimplemented : absl::StatusCode::kInvalidArgument, absl::StrJoin(all_, "\n", text));
  }

 private:
  std::vector<absl::Status> all_;
};

void CheckShape(const config::ModelConfig& m, Problems* p) {
  if (m.num_heads() % m.num_kv_heads() != 0)
    p->Add(InvalidArgument("model.num_heads is ", m.num_heads(), ", not divisible by model.num_kv_heads, which is ", m.num_kv_heads(), "; each key/value head serves as many query heads"));
  if (m.head_dim() == 0 && m.d_model() % m.num_heads() != 0) {
    p->Add(InvalidArgument("model.d_model is ", m.d_model(), ", not divisible by model.num_heads, which is ", m.num_heads(), "; change one of them or set model.head_dim"));
  } else if (const int64_t head = m.head_dim() ? m.head_dim() : m.d_model() / m.num_heads(); head % 2 != 0) {
    if (m.head_dim()) p->Add(InvalidArgument("model.head_dim is ", head, ", must be even (rotary positions turn pairs)"));
    else p->Add(InvalidArgument("model.d_model / model.num_heads is ", m.d_model(), " / ", m.num_heads(), " = ", head, ", must be even (rotary positions turn pairs); change one of them or set model.head_dim"));
  }
  if (m.num_dense_layers() > m.num_layers())
    p->Add(InvalidArgument("model.num_dense_layers is ", m.num_dense_layers(), ", must be at most model.num_layers, which is ", m.num_layers()));
  // Sizes are int64 everywhere: an expert layer that does not fit is refused before anything multiplies it out.
  const double experts = 3.0 * static_cast<double>(m.num_global_experts()) * static_cast<double>(m.d_model()) * static_cast<double>(std::max(m.d_hidden(), m.d_hidden_dense()));
  if (experts > 1e15)
    p->Add(InvalidArgument("model.num_global_experts ", m.num_global_experts(), " x model.d_model ", m.d_model(), " x model.d_hidden ", std::max(m.d_hidden(), m.d_hidden_dense()), " is about ",
                           ShortestText(experts), " parameters in one layer; no machine holds more than 1e15"));
}

// Makes the modules for a moment: they know best what they take.
void CheckModules(const config::Config& c, const ModuleFactory& modules, Problems* p) {
  const config::ModelConfig& m = c.model();
  GateSpec gate;
  gate.d_model = m.d_model();
  gate.num_global_experts = m.num_global_experts();
  gate.top_k = m.top_k();
  gate.config = c.gate();
  if (m.top_k() > m.num_global_experts())
    p->Add(InvalidArgument("model.top_k is ", m.top_k(), ", must be at most model.num_global_experts, which is ", m.num_global_experts()));
  else
    p->Add(modules.MakeGate(gate).status());
  ExpertSpec expert;
  expert.d_model = m.d_model();
  expert.d_hidden = m.d_hidden();
  expert.num_global_experts = m.num_global_experts();
  expert.local_experts = {0};
  expert.config = c.expert();
  p->Add(modules.MakeExpert(expert).status());
}

void CheckLayout(const config::Config& c, const ModuleFactory& modules, Problems* p) {
  const auto mesh = MeshFromConfig(c.ranks(), c.mesh(), c.model().num_global_experts());
  p->Add(mesh.status());
  const auto partition = modules.MakePartition(c.partition());
  p->Add(partition.status());
  if (mesh.ok() && partition.ok()) p->Add((*partition)->Place(c.model().num_global_experts(), mesh->size(Axis::kEp)).status());
}

void CheckOptimizer(const config::Config& c, Problems* p) {
  const config::OptimizerConfig& o = c.optimizer();
  if (o.schedule() == "cosine" && o.decay_steps() > 0 && o.decay_steps() < o.warmup_steps())
    p->Add(InvalidArgument("optimizer.decay_steps is ", o.decay_steps(), ", must be at least optimizer.warmup_steps, which is ", o.warmup_steps(),
                           "; it counts from step 0, warm-up included (0: `steps`)"));
}

}  // namespace

absl::Status ValidateConfig(const config::Config& c, const ModuleFactory& modules) {
  MOE_RETURN_IF_ERROR(CheckConfigRanges(c));   // what follows divides by fields
  Problems p;
  if (c.model().dtype() == "float64" && c.device() != "reference")
    p.Add(InvalidArgument("model.dtype is float64 and device is ", c.device(), ", which computes in float32; set device=reference or model.dtype=float32"));
  CheckShape(c.model(), &p);
  CheckModules(c, modules, &p);
  CheckLayout(c, modules, &p);
  CheckOptimizer(c, &p);
  return p.Status();
}

}  // namespace moe
