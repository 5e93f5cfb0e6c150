#include "core/config/fields.h"

#include <cmath>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "core/config/options.pb.h"

namespace moe {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

void Walk(const Descriptor* d, const std::string& prefix, const std::vector<const Field*>& chain, std::vector<LeafField>* out) {
  for (int i = 0; i < d->field_count(); ++i) {
    const Field* f = d->field(i);
    std::vector<const Field*> at = chain;
    at.push_back(f);
    if (f->cpp_type() == Field::CPPTYPE_MESSAGE) Walk(f->message_type(), prefix + f->name() + ".", at, out);
    else out->push_back({prefix + f->name(), at});
  }
}

const Message& Holder(const config::Config& c, const LeafField& f) {
  const Message* m = &c;
  for (size_t i = 0; i + 1 < f.chain.size(); ++i) m = &m->GetReflection()->GetMessage(*m, f.chain[i]);
  return *m;
}

}  // namespace

const std::vector<LeafField>& ConfigLeaves() {
  static const std::vector<LeafField>* const leaves = [] {   // of the schema, which never changes
    auto* out = new std::vector<LeafField>();
    Walk(config::Config::descriptor(), "", {}, out);
    return out;
  }();
  return *leaves;
}

const char* LeafType(const Field* f) {
  switch (f->cpp_type()) {
    case Field::CPPTYPE_DOUBLE: return "number";
    case Field::CPPTYPE_BOOL: return "boolean";
    case Field::CPPTYPE_STRING: return "string";
    default: return "integer";
  }
}

std::string LeafExpects(const Field* f) {
  const auto& o = f->options();
  if (o.HasExtension(config::allowed)) return absl::StrCat("one of ", absl::StrReplaceAll(o.GetExtension(config::allowed), {{",", ", "}}));
  if (f->cpp_type() == Field::CPPTYPE_BOOL) return "true or false";
  if (f->cpp_type() == Field::CPPTYPE_STRING) return "text in UTF-8 (in a file: in quotes)";
  std::string out = f->cpp_type() == Field::CPPTYPE_DOUBLE ? "a number" : "an integer";
  const bool has_min = o.HasExtension(config::min), has_max = o.HasExtension(config::max);
  if (has_min) absl::StrAppend(&out, ", at least ", ShortestText(o.GetExtension(config::min)));
  else if (f->cpp_type() == Field::CPPTYPE_UINT64) absl::StrAppend(&out, ", at least 0");
  if (has_max) absl::StrAppend(&out, has_min ? " and at most " : ", at most ", ShortestText(o.GetExtension(config::max)));
  return out;
}

std::string ShortestText(double v) {
  if (v == std::floor(v) && std::abs(v) < 1e15) return absl::StrFormat("%.0f", v);
  for (int digits = 6; digits < 17; ++digits) {
    std::string text = absl::StrFormat("%.*g", digits, v);
    if (std::strtod(text.c_str(), nullptr) == v) return text;
  }
  return absl::StrFormat("%.17g", v);
}

std::string LeafDefault(const Field* f) {
  if (!f->has_default_value()) return "";
  switch (f->cpp_type()) {
    case Field::CPPTYPE_INT32: return absl::StrCat(f->default_value_int32());
    case Field::CPPTYPE_INT64: return absl::StrCat(f->default_value_int64());
    case Field::CPPTYPE_UINT64: return absl::StrCat(f->default_value_uint64());
    case Field::CPPTYPE_DOUBLE: return ShortestText(f->default_value_double());
    case Field::CPPTYPE_BOOL: return f->default_value_bool() ? "true" : "false";
    default: return f->default_value_string();
  }
}

bool LeafIsSet(const config::Config& c, const LeafField& f) {
  const Message& m = Holder(c, f);
  return m.GetReflection()->HasField(m, f.leaf());
}

std::string LeafText(const config::Config& c, const LeafField& f) {
  if (!LeafIsSet(c, f)) return LeafDefault(f.leaf());
  const Message& m = Holder(c, f);
  const Reflection* r = m.GetReflection();
  switch (f.leaf()->cpp_type()) {
    case Field::CPPTYPE_INT32: return absl::StrCat(r->GetInt32(m, f.leaf()));
    case Field::CPPTYPE_INT64: return absl::StrCat(r->GetInt64(m, f.leaf()));
    case Field::CPPTYPE_UINT64: return absl::StrCat(r->GetUInt64(m, f.leaf()));
    case Field::CPPTYPE_DOUBLE: return ShortestText(r->GetDouble(m, f.leaf()));
    case Field::CPPTYPE_BOOL: return r->GetBool(m, f.leaf()) ? "true" : "false";
    default: return r->GetString(m, f.leaf());
  }
}

absl::Status SetLeaf(config::Config* c, const LeafField& f, const std::string& value) {
  Message* m = c;
  for (size_t i = 0; i + 1 < f.chain.size(); ++i) m = m->GetReflection()->MutableMessage(m, f.chain[i]);
  const Reflection* r = m->GetReflection();
  const Field* leaf = f.leaf();
  if (value.empty() && !leaf->has_default_value()) {
    r->ClearField(m, leaf);
    return absl::OkStatus();
  }
  const auto wrong = [&] { return InvalidArgument(f.path, " is '", value, "'; it must be ", LeafExpects(leaf)); };
  switch (leaf->cpp_type()) {
    case Field::CPPTYPE_INT32: {
      int32_t v;
      if (!absl::SimpleAtoi(value, &v)) return wrong();
      r->SetInt32(m, leaf, v);
      return absl::OkStatus();
    }
    case Field::CPPTYPE_INT64: {
      int64_t v;
      if (!absl::SimpleAtoi(value, &v)) return wrong();
      r->SetInt64(m, leaf, v);
      return absl::OkStatus();
    }
    case Field::CPPTYPE_UINT64: {
      uint64_t v;
      if (!absl::SimpleAtoi(value, &v)) return wrong();
      r->SetUInt64(m, leaf, v);
      return absl::OkStatus();
    }
    case Field::CPPTYPE_DOUBLE: {
      double v;
      if (!absl::SimpleAtod(value, &v) || !std::isfinite(v)) return wrong();
      r->SetDouble(m, leaf, v);
      return absl::OkStatus();
    }
    case Field::CPPTYPE_BOOL: {
      bool v;
      if (!absl::SimpleAtob(value, &v)) return wrong();
      r->SetBool(m, leaf, v);
      return absl::OkStatus();
    }
    default:
      r->SetString(m, leaf, value);
      return absl::OkStatus();
  }
}

}  // namespace moe
