// The configuration explains itself: comments, defaults and limits from the .proto, compiled in as a descriptor set.
#include <map>

#include "absl/strings/str_replace.h"
#include "core/config/config_io.h"
#include "core/config/descriptor_bytes.h"
#include "core/config/fields.h"
#include "core/config/options.pb.h"
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
      while (!text.empty() && text.back() == ' ') text.pop_back();
      while (!text.empty() && text.front() == ' ') text.erase(0, 1);
      out[message.name() + "." + message.field(location.path(3)).name()] = text;
    }
  }
  return out;
}

}  // namespace

std::string DescribeConfig() {
  const auto comments = Comments();
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const LeafField& f : ConfigLeaves()) {
    nlohmann::ordered_json j;
    j["path"] = f.path;
    j["type"] = LeafType(f.leaf());
    if (f.leaf()->has_default_value()) j["default"] = LeafDefault(f.leaf());
    const auto it = comments.find(f.leaf()->containing_type()->name() + "." + f.leaf()->name());
    j["doc"] = it == comments.end() ? "" : it->second;
    const auto& o = f.leaf()->options();
    if (o.HasExtension(config::allowed)) j["allowed"] = o.GetExtension(config::allowed);
    if (o.HasExtension(config::min)) j["min"] = o.GetExtension(config::min);
    if (o.HasExtension(config::max)) j["max"] = o.GetExtension(config::max);
    all.push_back(std::move(j));
  }
  return all.dump();
}

}  // namespace moe
