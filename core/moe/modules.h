// How the engine gets its gates, experts and partitions without knowing any: by name from a factory that
// experts/registry.h implements and that plug-ins join.
#ifndef MOE_CORE_MOE_MODULES_H_
#define MOE_CORE_MOE_MODULES_H_

#include <memory>
#include <string>
#include <vector>

#include "core/moe/expert.h"
#include "core/moe/gate.h"
#include "core/moe/partition.h"

namespace moe {

class ModuleFactory {
 public:
  virtual ~ModuleFactory() = default;
  // spec.config.kind() names the module. Unknown names: INVALID_ARGUMENT naming field, value and the allowed names.
  virtual absl::StatusOr<std::unique_ptr<Gate>> MakeGate(const GateSpec& spec) const = 0;
  virtual absl::StatusOr<std::unique_ptr<Expert>> MakeExpert(const ExpertSpec& spec) const = 0;
  virtual absl::StatusOr<std::unique_ptr<Partition>> MakePartition(const config::PartitionConfig& config) const = 0;
  virtual std::vector<std::string> GateNames() const = 0;
  virtual std::vector<std::string> ExpertNames() const = 0;
  virtual std::vector<std::string> PartitionNames() const = 0;
};

}  // namespace moe
#endif  // MOE_CORE_MOE_MODULES_H_
