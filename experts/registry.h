// Gates, experts and partitions by name. The bundled ones are there from the start; a plug-in registers its own.
#ifndef MOE_EXPERTS_REGISTRY_H_
#define MOE_EXPERTS_REGISTRY_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/moe/modules.h"

namespace moe {

class Registry : public ModuleFactory {
 public:
  using GateMaker = std::function<absl::StatusOr<std::unique_ptr<Gate>>(const GateSpec&)>;
  using ExpertMaker = std::function<absl::StatusOr<std::unique_ptr<Expert>>(const ExpertSpec&)>;
  using PartitionMaker = std::function<absl::StatusOr<std::unique_ptr<Partition>>(const config::PartitionConfig&)>;

  // ALREADY_EXISTS when the name is taken.
  absl::Status RegisterGate(const std::string& name, GateMaker maker);
  absl::Status RegisterExpert(const std::string& name, ExpertMaker maker);
  absl::Status RegisterPartition(const std::string& name, PartitionMaker maker);

  absl::StatusOr<std::unique_ptr<Gate>> MakeGate(const GateSpec& spec) const override;
  absl::StatusOr<std::unique_ptr<Expert>> MakeExpert(const ExpertSpec& spec) const override;
  absl::StatusOr<std::unique_ptr<Partition>> MakePartition(const config::PartitionConfig& config) const override;
  std::vector<std::string> GateNames() const override;
  std::vector<std::string> ExpertNames() const override;
  std::vector<std::string> PartitionNames() const override;

 private:
  std::map<std::string, GateMaker> gates_;
  std::map<std::string, ExpertMaker> experts_;
  std::map<std::string, PartitionMaker> partitions_;
};

// With every bundled module.
std::unique_ptr<Registry> MakeDefaultRegistry();

// What the user should be told of a configuration that works but hardly does what was meant; for the log and the run's status.
std::vector<std::string> ModuleWarnings(const config::Config& c);

}  // namespace moe
#endif  // MOE_EXPERTS_REGISTRY_H_
