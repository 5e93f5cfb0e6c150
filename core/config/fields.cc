#include "core/config/fields.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "core/config/options.pb.h"

namespace moe {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

void Walk(const Descriptor* d, const std::string& prefix, std::vector<const Field*> chain, std::vector<LeafField>* out) {
  for (int i = 0; i < d->field_count(); ++i) {
    const Field* f = d->field(i);
    std::vector<const Field*> at = chain;
    at.push_back(f);
    if (f->cpp_type() == Field::CPPTYPE_MESSAGE) Walk(f->message_type(), prefix + f->name() + ".", at, out);
    else out->push_back({prefix + f->name(), at});
  }
}

// Levenshtein's distance.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

// The shortest text that reads back as the same number.
std::string Shortest(double v) {
  for (int digits = 6; digits < 17; ++digits) {
    char text[40];
    std::snprintf(text, sizeof(text), "%.*g", digits, v);
    if (std::strtod(text, nullptr) == v) return text;
  }
  return absl::StrCat(v);
}

const Message& Holder(const config::Config& c, const LeafField& f) {
  const Message* m = &c;
  for (size_t i = 0; i + 1 < f.chain.size(); ++i) m = &m->GetReflection()->GetMessage(*m, f.chain[i]);
  return *m;
}

absl::Status Wrong(const LeafField& f, const std::string& value, const std::string& expected) {
  return InvalidArgument(f.path, " is '", value, "', expected ", expected);
}

}  // namespace

std::vector<LeafField> ConfigLeaves() {
  std::vector<LeafField> out;
  Walk(config::Config::descriptor(), "", {}, &out);
  return out;
}

absl::StatusOr<LeafField> FindConfigField(const std::string& path) {
  std::vector<LeafField> leaves = ConfigLeaves();
  for (const LeafField& l : leaves)
    if (l.path == path || l.path == path + ".kind") return l;
  // A section without a kind, or a wrong name.
  std::vector<std::string> inside;
  for (const LeafField& l : leaves)
    if (l.path.compare(0, path.size() + 1, path + ".") == 0) inside.push_back(l.path);
  if (!inside.empty()) return InvalidArgument("'", path, "' is a section and takes no value; its fields: ", absl::StrJoin(inside, ", "));
  // A bare name is also compared with the last part of each path.
  const auto distance = [&](const LeafField& l) { return std::min(EditDistance(l.path, path), EditDistance(l.leaf()->name(), path)); };
  std::stable_sort(leaves.begin(), leaves.end(), [&](const LeafField& a, const LeafField& b) { return distance(a) < distance(b); });
  std::vector<std::string> near;
  for (size_t i = 0; i < 3 && i < leaves.size(); ++i) near.push_back(leaves[i].path);
  return InvalidArgument("there is no field '", path, "'; nearest: ", absl::StrJoin(near, ", "));
}

const char* LeafType(const Field* f) {
  switch (f->cpp_type()) {
    case Field::CPPTYPE_INT32: case Field::CPPTYPE_INT64: return "integer";
    case Field::CPPTYPE_UINT64: return "unsigned integer";
    case Field::CPPTYPE_DOUBLE: return "number";
    case Field::CPPTYPE_BOOL: return "true or false";
    default: return "text";
  }
}

std::string LeafDefault(const Field* f) {
  if (!f->has_default_value()) return "";
  switch (f->cpp_type()) {
    case Field::CPPTYPE_INT32: return absl::StrCat(f->default_value_int32());
    case Field::CPPTYPE_INT64: return absl::StrCat(f->default_value_int64());
    case Field::CPPTYPE_UINT64: return absl::StrCat(f->default_value_uint64());
    case Field::CPPTYPE_DOUBLE: return Shortest(f->default_value_double());
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
    case Field::CPPTYPE_DOUBLE: return Shortest(r->GetDouble(m, f.leaf()));
    case Field::CPPTYPE_BOOL: return r->GetBool(m, f.leaf()) ? "true" : "false";
    default: return r->GetString(m, f.leaf());
  }
}

absl::Status SetLeaf(config::Config* c, const LeafField& f, const std::string& value) {
  Message* m = c;
  for (size_t i = 0; i + 1 < f.chain.size(); ++i) m = m->GetReflection()->MutableMessage(m, f.chain[i]);
  const Reflection* r = m->GetReflection();
  const Field* leaf = f.leaf();
  switch (leaf->cpp_type()) {
    case Field::CPPTYPE_INT32: {
      int32_t v;
      if (!absl::SimpleAtoi(value, &v)) return Wrong(f, value, "an integer");
      r->SetInt32(m, leaf, v);
      return absl::OkStatus();
    }
    case Field::CPPTYPE_INT64: {
      int64_t v;
      if (!absl::SimpleAtoi(value, &v)) return Wrong(f, value, "an integer");
      r->SetInt64(m, leaf, v);
      return absl::OkStatus();
    }
    case Field::CPPTYPE_UINT64: {
      uint64_t v;
      if (!absl::SimpleAtoi(value, &v)) return Wrong(f, value, "an integer >= 0");
      r->SetUInt64(m, leaf, v);
      return absl::OkStatus();
    }
    case Field::CPPTYPE_DOUBLE: {
      double v;
      if (!absl::SimpleAtod(value, &v) || !std::isfinite(v)) return Wrong(f, value, "a number");
      r->SetDouble(m, leaf, v);
      return absl::OkStatus();
    }
    case Field::CPPTYPE_BOOL: {
      bool v;
      if (!absl::SimpleAtob(value, &v)) return Wrong(f, value, "true or false");
      r->SetBool(m, leaf, v);
      return absl::OkStatus();
    }
    default:
      r->SetString(m, leaf, value);
      return absl::OkStatus();
  }
}

}  // namespace moe
