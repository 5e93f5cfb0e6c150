// Fields against each other, names against the modules at hand, sizes against the ranks.
#ifndef MOE_CORE_CONFIG_VALIDATE_H_
#define MOE_CORE_CONFIG_VALIDATE_H_

#include "core/base/status.h"
#include "core/config/config.pb.h"
#include "core/moe/modules.h"

namespace moe {

// Everything that is wrong, one line each: field, value, remedy. UNIMPLEMENTED when the only obstacle is what this version
// does not do yet, else INVALID_ARGUMENT.
absl::Status ValidateConfig(const config::Config& c, const ModuleFactory& modules);

}  // namespace moe
#endif  // MOE_CORE_CONFIG_VALIDATE_H_
