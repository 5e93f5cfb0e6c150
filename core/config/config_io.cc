#include "core/config/config_io.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "core/config/fields.h"
#include "core/config/options.pb.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/json_util.h"

namespace moe {
namespace {

// Keeps the first error of the parser, with its line.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (text_.empty()) text_ = absl::StrCat("line ", line + 1, ", column ", column + 1, ": ", message);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// "No field named \"d_modle\"" in section s: append what is near.
std::string WithNearest(const std::string& message) {
  for (const char* marker : {"no field named \"", "Cannot find field"}) {
    const size_t at = message.find(marker);
    if (at == std::string::npos) continue;
    const size_t begin = message.find_first_of("\"", at), end = begin == std::string::npos ? begin : message.find('"', begin + 1);
    if (end == std::string::npos) continue;
    const auto found = FindConfigField(message.substr(begin + 1, end - begin - 1));
    if (!found.ok()) return absl::StrCat(message, " (", std::string(found.status().message()), ")");
  }
  return message;
}

}  // namespace

absl::StatusOr<config::Config> ParseConfig(const std::string& text, const std::string& source) {
  config::Config c;
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] == '{') {
    const auto s = google::protobuf::util::JsonStringToMessage(text, &c);
    if (!s.ok()) return InvalidArgument(source, ": ", WithNearest(std::string(s.message())));
  } else {
    google::protobuf::TextFormat::Parser parser;
    FirstError error;
    parser.RecordErrorsTo(&error);
    if (!parser.ParseFromString(text, &c)) return InvalidArgument(source, ": ", WithNearest(error.text()));
  }
  MOE_RETURN_IF_ERROR(Annotate(CheckConfigRanges(c), source));
  return c;
}

absl::StatusOr<config::Config> LoadConfig(const std::string& path) {
  std::ifstream f(path, std::ios::binary);
  std::ostringstream text;
  if (!f || !(text << f.rdbuf())) return absl::NotFoundError(absl::StrCat("cannot read the configuration ", path, ": ", std::strerror(errno)));
  return ParseConfig(text.str(), path);
}

absl::Status SetConfigField(config::Config* c, const std::string& path, const std::string& value) {
  MOE_ASSIGN_OR_RETURN(LeafField f, FindConfigField(path));
  config::Config changed = *c;
  MOE_RETURN_IF_ERROR(SetLeaf(&changed, f, value));
  MOE_RETURN_IF_ERROR(CheckConfigRanges(changed));
  *c = std::move(changed);
  return absl::OkStatus();
}

absl::StatusOr<std::string> GetConfigField(const config::Config& c, const std::string& path) {
  MOE_ASSIGN_OR_RETURN(LeafField f, FindConfigField(path));
  return LeafText(c, f);
}

absl::Status CheckConfigRanges(const config::Config& c) {
  for (const LeafField& f : ConfigLeaves()) {
    if (!LeafIsSet(c, f)) continue;
    const auto& options = f.leaf()->options();
    const std::string value = LeafText(c, f);
    if (options.HasExtension(config::allowed)) {
      const std::vector<std::string> allowed = absl::StrSplit(options.GetExtension(config::allowed), ',');
      if (std::find(allowed.begin(), allowed.end(), value) == allowed.end())
        return InvalidArgument(f.path, " is '", value, "'; allowed: ", options.GetExtension(config::allowed));
    }
    double v = 0;
    if (!options.HasExtension(config::min) && !options.HasExtension(config::max)) continue;
    if (!absl::SimpleAtod(value, &v)) continue;
    const bool low = options.HasExtension(config::min) && v < options.GetExtension(config::min);
    const bool high = options.HasExtension(config::max) && v > options.GetExtension(config::max);
    if (!low && !high) continue;
    std::string range = options.HasExtension(config::min) ? absl::StrCat("at least ", options.GetExtension(config::min)) : "";
    if (options.HasExtension(config::max)) absl::StrAppend(&range, range.empty() ? "" : " and ", "at most ", options.GetExtension(config::max));
    return InvalidArgument(f.path, " is ", value, ", must be ", range);
  }
  return absl::OkStatus();
}

namespace {

config::Config Filled(const config::Config& c) {
  config::Config out = c;
  for (const LeafField& f : ConfigLeaves())
    if (!LeafIsSet(c, f) && f.leaf()->has_default_value()) (void)SetLeaf(&out, f, LeafDefault(f.leaf()));   // a default is valid
  return out;
}

}  // namespace

std::string ConfigToText(const config::Config& c, bool full) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(full ? Filled(c) : c, &text);
  return text;
}

absl::StatusOr<std::string> ConfigToJson(const config::Config& c, bool full) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto s = google::protobuf::util::MessageToJsonString(full ? Filled(c) : c, &json, options);
  if (!s.ok()) return Internal("configuration to JSON: ", std::string(s.message()));
  return json;
}

}  // namespace moe
