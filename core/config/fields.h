// The configuration's fields by path, through reflection: what reading, writing, checking and explaining it are made of.
#ifndef MOE_CORE_CONFIG_FIELDS_H_
#define MOE_CORE_CONFIG_FIELDS_H_

#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/config/config.pb.h"
#include "google/protobuf/descriptor.h"

namespace moe {

using Field = google::protobuf::FieldDescriptor;

struct LeafField {
  std::string path;                 // "model.top_k"
  std::vector<const Field*> chain;  // from the root to the leaf
  const Field* leaf() const { return chain.back(); }
};

// All leaves, in the order of the .proto.
const std::vector<LeafField>& ConfigLeaves();
// The leaf of a path; a section means its `kind`. INVALID_ARGUMENT with the nearest paths, or the fields of the section.
absl::StatusOr<LeafField> FindConfigField(const std::string& path);

bool LeafIsSet(const config::Config& c, const LeafField& f);
// The value as text, the default when unset, "" when there is none.
std::string LeafText(const config::Config& c, const LeafField& f);
// The default as text; "" when there is none.
std::string LeafDefault(const Field* f);
// Parses `value` and sets the leaf; an empty value unsets a leaf without default.
absl::Status SetLeaf(config::Config* c, const LeafField& f, const std::string& value);

// "integer", "number", "boolean" or "string".
const char* LeafType(const Field* f);
// What a leaf takes: "an integer, at least 1 and at most 65536"; "one of cpu, reference".
std::string LeafExpects(const Field* f);
// The shortest text that reads back as the same number.
std::string ShortestText(double v);

}  // namespace moe
#endif  // MOE_CORE_CONFIG_FIELDS_H_
