// The two formats of a configuration file. Ranges are checked by the caller.
#ifndef MOE_CORE_CONFIG_READERS_H_
#define MOE_CORE_CONFIG_READERS_H_

#include <string>

#include "core/base/status.h"
#include "core/config/config.pb.h"

namespace moe {

absl::StatusOr<config::Config> ReadText(const std::string& text);
absl::StatusOr<config::Config> ReadJson(const std::string& text);

}  // namespace moe
#endif  // MOE_CORE_CONFIG_READERS_H_
