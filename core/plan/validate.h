// Whether the ranks can share this model in the way the configuration asks for: tensor, context, pipeline and expert axes
// against heads, sequences, layers and widths. What core/config checks (ranges, names, sizes that factor) comes before.
#ifndef MOE_CORE_PLAN_VALIDATE_H_
#define MOE_CORE_PLAN_VALIDATE_H_

#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/config/config.pb.h"

namespace moe {

// Everything that does not fit, one line each: field, value, the nearest values that work. INVALID_ARGUMENT.
absl::Status ValidateLayout(const config::Config& c);

// What works and is probably not meant, one sentence each. Of a configuration that ValidateLayout accepts.
std::vector<std::string> ConfigWarnings(const config::Config& c);

// UNIMPLEMENTED for models that a plan can lay out and training does not compute.
absl::Status CheckTrainable(const config::Config& c);

}  // namespace moe
#endif  // MOE_CORE_PLAN_VALIDATE_H_
