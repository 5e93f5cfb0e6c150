// Walking over the configuration's fields by reflection.
#ifndef MOE_CORE_CONFIG_FIELDS_H_
#define MOE_CORE_CONFIG_FIELDS_H_

#include <functional>
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
std::vector<LeafField> ConfigLeaves();
// The leaf of a path; a section means its `kind`. NOT_FOUND... is INVALID_ARGUMENT with the nearest paths.
absl::StatusOr<LeafField> FindConfigField(const std::string& path);
// The value of a leaf as text, the default when unset, "" when it has none.
std::string LeafText(const config::Config& c, const LeafField& f);
bool LeafIsSet(const config::Config& c, const LeafField& f);
// Its default as text; "" when it has none.
std::string LeafDefault(const Field* f);
const char* LeafType(const Field* f);
// Parses `value` and sets the leaf.
absl::Status SetLeaf(config::Config* c, const LeafField& f, const std::string& value);

}  // namespace moe
#endif  // MOE_CORE_CONFIG_FIELDS_H_
