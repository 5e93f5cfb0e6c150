// Reading, writing, checking and explaining the configuration. Every refusal names the field's path, the value and what is
// allowed.
#ifndef MOE_CORE_CONFIG_CONFIG_IO_H_
#define MOE_CORE_CONFIG_CONFIG_IO_H_

#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/config/config.pb.h"

namespace moe {

// Protobuf text format, or JSON when the first character is '{'. `source` is named in errors.
absl::StatusOr<config::Config> ParseConfig(const std::string& text, const std::string& source);
absl::StatusOr<config::Config> LoadConfig(const std::string& path);

// Sets the field at `path` ("model.top_k"); a section's path sets its `kind`.
absl::Status SetConfigField(config::Config* c, const std::string& path, const std::string& value);
// Its value as text; the default when unset; "" when there is none.
absl::StatusOr<std::string> GetConfigField(const config::Config& c, const std::string& path);

// Ranges and allowed values of every field that is set (field options of the .proto).
absl::Status CheckConfigRanges(const config::Config& c);

// With `full` every field with its effective value, else the fields that were set.
std::string ConfigToText(const config::Config& c, bool full);
absl::StatusOr<std::string> ConfigToJson(const config::Config& c, bool full);

// JSON array of {path, type, default, doc, allowed, min, max}, in the order of the .proto.
std::string DescribeConfig();

}  // namespace moe
#endif  // MOE_CORE_CONFIG_CONFIG_IO_H_
