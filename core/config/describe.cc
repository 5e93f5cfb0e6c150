// The configuration explains itself: comments, defaults and limits from the .proto, compiled in as a descriptor set.
#include <map>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "core/config/config_io.h"
#include "core/config/descriptor_bytes.h"
#include "core/config/fields.h"
#include "core/config/options.pb.h"
#include "core/moe/modules.h"
#include "google/protobuf/descriptor.pb.h"
#include "nlohmann/json.hpp"

namespace moe {
namespace {

// Comments stand in the source info of the file's descriptor under the path of numbers from the file to the field.
std::map<std::string, std::string> Comments() {
  std::map<std::string, std::string> out;   // "Message.field" -> comment
  google::protobuf::FileDescriptorSet set;
  if (!set.ParseFromArray(kConfigDescriptorSet, static_cast<int>(kConfigDescriptorSetSize))) return out;
  for (const auto& file : set.file()) {
    for (const auto& location : file.source_code_info().location()) {
      if (location.path_size() != 4 || location.path(0) != 4 || location.path(2) != 2) continue;   // message_type, field
      const auto& message = file.message_type(location.path(1));
      std::string text = location.leading_comments();
      absl::StrReplaceAll({{"\n ", " "}, {"\n", " "}}, &text);
      out[message.name() + "." + message.field(location.path(3)).name()] = std::string(absl::StripAsciiWhitespace(text));
    }
  }
  return out;
}

std::string Allowed(const LeafField& f, const ModuleFactory* modules) {
  if (modules != nullptr) {
    if (f.path == "gate.kind") return absl::StrJoin(modules->GateNames(), ",");
    if (f.path == "expert.kind") return absl::StrJoin(modules->ExpertNames(), ",");
    if (f.path == "partition.kind") return absl::StrJoin(modules->PartitionNames(), ",");
  }
  return f.leaf()->options().GetExtension(config::allowed);
}

}  // namespace

std::string DescribeConfig(const ModuleFactory* modules) {
  const auto comments = Comments();
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const LeafField& f : ConfigLeaves()) {
    nlohmann::ordered_json j;
    j["path"] = f.path;
    j["type"] = LeafType(f.leaf());
    if (f.leaf()->has_default_value()) j["default"] = LeafDefault(f.leaf());
    const auto it = comments.find(f.leaf()->containing_type()->name() + "." + f.leaf()->name());
    j["doc"] = it == comments.end() ? "" : it->second;
    if (std::string allowed = Allowed(f, modules); !allowed.empty()) j["allowed"] = std::move(allowed);
    const auto& o = f.leaf()->options();
    if (o.HasExtension(config::min)) j["min"] = o.GetExtension(config::min);
    if (o.HasExtension(config::max)) j["max"] = o.GetExtension(config::max);
    all.push_back(std::move(j));
  }
  return all.dump();
}

}  // namespace moe
