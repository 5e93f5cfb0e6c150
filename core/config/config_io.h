// Reading, writing, checking and explaining the configuration. Every refusal names the field's path, the value and what is
// allowed.
#ifndef MOE_CORE_CONFIG_CONFIG_IO_H_
#define MOE_CORE_CONFIG_CONFIG_IO_H_

#include <string>

#include "core/base/status.h"
#include "core/config/config.pb.h"

namespace moe {

class ModuleFactory;

// Protobuf text format, or JSON when the first character is '{'. `source` is named in errors, with line or path.
absl::StatusOr<config::Config> ParseConfig(const std::string& text, const std::string& source);
absl::StatusOr<config::Config> LoadConfig(const std::string& path);

// Sets the field at `path` ("model.top_k"); a section's path sets its `kind`; an empty value unsets a field without default.
// On error nothing is changed.
absl::Status SetConfigField(config::Config* c, const std::string& path, const std::string& value);
// Its value as text; the default when unset; "" when there is none.
absl::StatusOr<std::string> GetConfigField(const config::Config& c, const std::string& path);

// Every field that is set by itself: range and allowed values (field options of the .proto), finite numbers, UTF-8.
absl::Status CheckConfigRanges(const config::Config& c);

// With `full` every field with its effective value (unset fields without default: a comment, null), else the fields that were set.
std::string ConfigToText(const config::Config& c, bool full);
std::string ConfigToJson(const config::Config& c, bool full);

// JSON array of {path, type, default, doc, allowed, min, max}, in the order of the .proto: default and allowed as text, the latter with
// commas; what a field does not have is left out. With `modules` the kinds of gate, expert and partition list the names there.
std::string DescribeConfig(const ModuleFactory* modules);

}  // namespace moe
#endif  // MOE_CORE_CONFIG_CONFIG_IO_H_
