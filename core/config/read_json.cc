// The configuration from JSON, event by event, so that an error can name the field. Takes what protobuf's JSON takes: field
// names as in the .proto or in camelCase, numbers also in quotes, null for "not set". A field that stands twice is refused.
#include <cmath>
#include <set>

#include "core/config/fields.h"
#include "core/config/readers.h"
#include "nlohmann/json.hpp"

namespace moe {
namespace {

using Json = nlohmann::json;
enum class Given { kInteger, kNumber, kText, kBool };

class Reader final : public Json::json_sax_t {
 public:
  explicit Reader(config::Config* c) : c_(c) {}
  const absl::Status& status() const { return status_; }

  bool null() override { return depth() > 0 || Refuse(InvalidArgument("the file is null, expected an object")); }
  bool boolean(bool v) override { return Scalar(v ? "true" : "false", Given::kBool); }
  bool number_integer(number_integer_t v) override { return Scalar(absl::StrCat(v), Given::kInteger); }
  bool number_unsigned(number_unsigned_t v) override { return Scalar(absl::StrCat(v), Given::kInteger); }
  bool number_float(number_float_t v, const string_t& raw) override {
    if (v == std::floor(v) && std::abs(v) < 9e15) return Scalar(ShortestText(v), Given::kInteger);   // 3.0
    return Scalar(raw, Given::kNumber);
  }
  bool string(string_t& v) override { return Scalar(v, Given::kText); }
  bool binary(binary_t&) override { return false; }   // not in JSON text
  bool start_array(std::size_t) override { return Refuse(InvalidArgument(Path(), " is a list, expected one value")); }
  bool end_array() override { return true; }

  bool start_object(std::size_t) override {
    if (depth() == 0) {
      messages_.push_back(config::Config::descriptor());
      return true;
    }
    if (field_->cpp_type() != Field::CPPTYPE_MESSAGE) return Refuse(InvalidArgument(Path(), " is an object; it must be ", LeafExpects(field_)));
    prefix_.push_back(Path() + ".");
    messages_.push_back(field_->message_type());
    return true;
  }
  bool end_object() override {
    messages_.pop_back();
    if (depth() > 0) prefix_.pop_back();
    return true;
  }

  bool key(string_t& name) override {
    const auto* m = messages_.back();
    field_ = m->FindFieldByName(name);
    if (field_ == nullptr) field_ = m->FindFieldByCamelcaseName(name);
    if (field_ == nullptr) {
      const auto found = FindConfigField(Prefix() + name);
      return Refuse(found.ok() ? InvalidArgument("there is no field '", Prefix() + name, "'") : found.status());
    }
    if (!seen_.insert(Path()).second) return Refuse(InvalidArgument(Path(), " stands twice"));
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& e) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    const std::string text = e.what();
    const size_t at = text.find("] ");
    return Refuse(InvalidArgument("not JSON: ", at == std::string::npos ? text : text.substr(at + 2)));
  }

 private:
  size_t depth() const { return messages_.size(); }
  std::string Prefix() const { return prefix_.empty() ? "" : prefix_.back(); }
  std::string Path() const { return field_ ? Prefix() + field_->name() : "the file"; }
  bool Refuse(absl::Status s) {
    if (status_.ok()) status_ = std::move(s);
    return false;
  }

  bool Scalar(const std::string& text, Given given) {
    if (depth() == 0) return Refuse(InvalidArgument("the file is one value, expected an object"));
    if (field_->cpp_type() == Field::CPPTYPE_MESSAGE) return Refuse(InvalidArgument(Path(), " is '", text, "'; it is a section, expected an object"));
    const bool fits = given == Given::kText || (given == Given::kBool) == (field_->cpp_type() == Field::CPPTYPE_BOOL);
    const bool number_for_text = field_->cpp_type() == Field::CPPTYPE_STRING && given != Given::kText;
    const bool empty_number = field_->cpp_type() != Field::CPPTYPE_STRING && text.empty();
    if (!fits || number_for_text || empty_number) return Refuse(InvalidArgument(Path(), " is '", text, "'; it must be ", LeafExpects(field_)));
    const auto leaf = FindConfigField(Path());
    if (!leaf.ok()) return Refuse(leaf.status());
    const absl::Status s = SetLeaf(c_, *leaf, text);
    return s.ok() || Refuse(s);
  }

  config::Config* c_;
  std::vector<const google::protobuf::Descriptor*> messages_;   // open objects
  std::vector<std::string> prefix_;                             // of the fields of each open section
  const Field* field_ = nullptr;                                // of the last key
  std::set<std::string> seen_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<config::Config> ReadJson(const std::string& text) {
  config::Config c;
  Reader reader(&c);
  if (!Json::sax_parse(text, &reader)) return reader.status().ok() ? InvalidArgument("not JSON") : reader.status();
  return c;
}

}  // namespace moe
