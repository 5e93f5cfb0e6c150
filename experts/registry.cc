#include "experts/registry.h"

#include "absl/strings/str_join.h"
#include "experts/expert/ffn_expert.h"
#include "experts/gate/mixtral_gate.h"
#include "experts/gate/switch_gate.h"
#include "experts/partition/block_partition.h"

namespace moe {
namespace {

template <typename Maker>
std::vector<std::string> Names(const std::map<std::string, Maker>& map) {
  std::vector<std::string> names;
  for (const auto& [name, maker] : map) names.push_back(name);
  return names;
}

template <typename Maker>
absl::Status Add(const char* what, std::map<std::string, Maker>* map, const std::string& name, Maker maker) {
  if (name.empty()) return InvalidArgument("a ", what, " needs a name");
  if (!maker) return InvalidArgument("the ", what, " named '", name, "' has no function that makes it");
  if (!map->emplace(name, std::move(maker)).second) return absl::AlreadyExistsError(absl::StrCat("a ", what, " named '", name, "' is registered already"));
  return absl::OkStatus();
}

template <typename Maker>
absl::StatusOr<const Maker*> Find(const char* field, const std::map<std::string, Maker>& map, const std::string& name) {
  const auto it = map.find(name);
  if (it == map.end()) return InvalidArgument(field, " is '", name, "'; allowed: ", absl::StrJoin(Names(map), ", "));
  return &it->second;
}

}  // namespace

absl::Status Registry::RegisterGate(const std::string& name, GateMaker maker) { return Add("gate", &gates_, name, std::move(maker)); }
absl::Status Registry::RegisterExpert(const std::string& name, ExpertMaker maker) { return Add("expert", &experts_, name, std::move(maker)); }
absl::Status Registry::RegisterPartition(const std::string& name, PartitionMaker maker) { return Add("partition", &partitions_, name, std::move(maker)); }

absl::StatusOr<std::unique_ptr<Gate>> Registry::MakeGate(const GateSpec& spec) const {
  MOE_ASSIGN_OR_RETURN(const GateMaker* make, Find("gate.kind", gates_, spec.config.kind()));
  return (*make)(spec);
}
absl::StatusOr<std::unique_ptr<Expert>> Registry::MakeExpert(const ExpertSpec& spec) const {
  MOE_ASSIGN_OR_RETURN(const ExpertMaker* make, Find("expert.kind", experts_, spec.config.kind()));
  return (*make)(spec);
}
absl::StatusOr<std::unique_ptr<Partition>> Registry::MakePartition(const config::PartitionConfig& config) const {
  MOE_ASSIGN_OR_RETURN(const PartitionMaker* make, Find("partition.kind", partitions_, config.kind()));
  return (*make)(config);
}

std::vector<std::string> Registry::GateNames() const { return Names(gates_); }
std::vector<std::string> Registry::ExpertNames() const { return Names(experts_); }
std::vector<std::string> Registry::PartitionNames() const { return Names(partitions_); }

std::unique_ptr<Registry> MakeDefaultRegistry() {
  auto r = std::make_unique<Registry>();
  // The names are distinct, so these cannot fail.
  (void)r->RegisterGate("mixtral", MakeMixtralGate);
  (void)r->RegisterGate("switch", MakeSwitchGate);
  const std::pair<const char*, Activation> kinds[] = {{"swiglu", Activation::kSwiGlu}, {"gelu", Activation::kGelu}, {"gelu_tanh", Activation::kGeluTanh}, {"relu", Activation::kRelu}};
  for (const auto& [name, activation] : kinds) (void)r->RegisterExpert(name, [a = activation](const ExpertSpec& spec) { return MakeFfnExpert(spec, a); });
  (void)r->RegisterPartition("block", [](const config::PartitionConfig&) -> absl::StatusOr<std::unique_ptr<Partition>> { return MakeBlockPartition(); });
  return r;
}

std::vector<std::string> ModuleWarnings(const config::Config& c) {
  std::vector<std::string> out;
  if (c.gate().kind() == "mixtral" && c.model().top_k() == 1) out.push_back(MixtralTopOneWarning());
  return out;
}

}  // namespace moe
