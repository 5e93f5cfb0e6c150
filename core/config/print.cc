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
  std::string out = "{", section;
  bool first = true;   // inside the innermost object
  const auto next = [&](const char* indent) {
    absl::StrAppend(&out, first ? "\n" : ",\n", indent);
    first = false;
  };
  const auto close = [&] {
    if (!section.empty()) out += "\n  }";
    section.clear();
  };
  for (const LeafField& f : ConfigLeaves()) {
    if (!full && !LeafIsSet(c, f)) continue;
    const std::string of = f.chain.size() > 1 ? f.chain[0]->name() : "";
    if (of != section) {
      close();
      next("  ");
      absl::StrAppend(&out, "\"", of, "\": {");
      section = of;
      first = true;
    }
    next(section.empty() ? "  " : "    ");
    const std::string value = LeafText(c, f);   // numbers and booleans are written alike
    const auto quoted = [&] { return nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); };
    absl::StrAppend(&out, "\"", f.leaf()->name(), "\": ", !HasValue(c, f) ? "null" : f.leaf()->cpp_type() == Field::CPPTYPE_STRING ? quoted() : value);
  }
  close();
  return out + (out.size() > 1 ? "\n}\n" : "}\n");
}

}  // namespace moe
