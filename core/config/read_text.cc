// The configuration from protobuf's text format. The parser's messages get what it does not know: path, meaning, neighbours.
#include "core/config/fields.h"
#include "core/config/readers.h"
#include "core/config/text_position.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"

namespace moe {
namespace {

class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (!message_.empty()) return;
    line_ = line;
    column_ = column;
    message_ = message;
  }
  absl::Status Explain(const std::string& text) const {
    const std::string where = absl::StrCat("line ", line_ + 1, ", column ", column_ + 1, ": ");
    const std::string path = FieldPathAt(text, line_, column_);
    const auto leaf = FindConfigField(path);
    if (message_.find("no field named") != std::string::npos && !leaf.ok()) return InvalidArgument(where, std::string(leaf.status().message()));
    if (leaf.ok() && leaf->path == path) return InvalidArgument(where, path, ": ", message_, "; it must be ", LeafExpects(leaf->leaf()));
    return InvalidArgument(where, path, path.empty() ? "" : ": ", message_.empty() ? "not in protobuf's text format" : message_);
  }

 private:
  int line_ = 0, column_ = 0;
  std::string message_;
};

}  // namespace

absl::StatusOr<config::Config> ReadText(const std::string& text) {
  config::Config c;
  google::protobuf::TextFormat::Parser parser;
  FirstError error;
  parser.RecordErrorsTo(&error);
  if (!parser.ParseFromString(text, &c)) return error.Explain(text);
  return c;
}

}  // namespace moe
