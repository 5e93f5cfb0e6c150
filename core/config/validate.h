// Fields against each other, names against the registered modules, sizes against the ranks.
#ifndef MOE_CORE_CONFIG_VALIDATE_H_
#define MOE_CORE_CONFIG_VALIDATE_H_

#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/config/config.pb.h"

namespace moe {

struct ModuleNames { std::vector<std::string> gates, experts, partitions; };

absl::Status ValidateConfig(const config::Config& c, const ModuleNames& names);

}  // namespace moe
#endif  // MOE_CORE_CONFIG_VALIDATE_H_
