// Writing the configuration. Full, it is the whole truth about a run: every field with the value in force, also those that
// the user never touched, so that a later library with other defaults repeats the run.
#include "absl/strings/escaping.h"
#include "core/config/config_io.h"
#include "core/config/fields.h"
#include "nlohmann/json.hpp"

namespace moe {
namespace {

bool HasValue(const config::Config& c, const LeafField& f) { return LeafIsSet(c, f) || f.leaf()->has_default_value(); }

}  // namespace

std::string ConfigToText(const config::Config& c, bool full) {
  std::string out, section;
  const auto close = [&] {
    if (!section.empty()) out += "}\n";
    section.clear();
  };
  for (const LeafField& f : ConfigLeaves()) {
    if (!full && !LeafIsSet(c, f)) continue;
    const std::string of = f.chain.size() > 1 ? f.chain[0]->name() : "";
    if (of != section) {
      close();
      if (!of.empty()) absl::StrAppend(&out, of, " {\n");
      section = of;
    }
    if (!section.empty()) out += "  ";
    const std::string value = LeafText(c, f);
    if (!HasValue(c, f)) absl::StrAppend(&out, "# ", f.leaf()->name(), " is not set\n");
    else if (f.leaf()->cpp_type() == Field::CPPTYPE_STRING) absl::StrAppend(&out, f.leaf()->name(), ": \"", absl::Utf8SafeCEscape(value), "\"\n");
    else absl::StrAppend(&out, f.leaf()->name(), ": ", value, "\n");
  }
  close();
  return out;
}

std::string ConfigToJson(const config::Config& c, bool full) {
  using Json = nlohmann::ordered_json;
  Json out = Json::object();
  for (const LeafField& f : ConfigLeaves()) {
    if (!full && !LeafIsSet(c, f)) continue;
    Json& holder = f.chain.size() > 1 ? out[f.chain[0]->name()] : out;
    const std::string value = LeafText(c, f);
    Json& j = holder[f.leaf()->name()];
    if (!HasValue(c, f)) j = nullptr;
    else if (f.leaf()->cpp_type() == Field::CPPTYPE_STRING) j = value;
    else j = Json::parse(value, nullptr, false);   // numbers and booleans are written alike
  }
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace moe
