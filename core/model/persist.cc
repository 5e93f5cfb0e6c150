// Saving and loading a model: what it hands to core/checkpoint.
#include "core/checkpoint/checkpoint.h"
#include "core/model/model.h"
#include "google/protobuf/text_format.h"

namespace moe {
namespace {

// What this rank reads, and writes where it answers for it: the first of the ranks that hold the same elements.
std::vector<CheckpointTensor> Tensors(const std::vector<std::pair<Param*, const ParamPiece*>>& pieces, const Optimizer& optimizer, const std::function<bool(ParamKind)>& owns, bool with_state) {
  std::vector<CheckpointTensor> out;
  for (const auto& [param, piece] : pieces) {
    CheckpointTensor t;
    t.owned = param->counted && owns(param->kind);
    t.global_shape = piece->global_shape;
    t.begin = piece->begin;
    t.name = piece->name;
    t.view = PieceView(param->value, *piece);
    out.push_back(t);
    for (const Optimizer::State& s : optimizer.state()) {
      if (!with_state) break;
      t.name = absl::StrCat("optimizer.", s.name, ".", piece->name);
      t.view = PieceView(optimizer.StateOf(s, *param), *piece);
      out.push_back(t);
    }
  }
  return out;
}

}  // namespace

absl::Status Model::Save(const std::string& path, const std::string& user_json) {
  CheckpointMeta meta;
  meta.step = step();
  meta.user_json = user_json;
  google::protobuf::TextFormat::PrintToString(config_, &meta.config);
  return SaveCheckpoint(context_.device, context_.world, path, meta, Tensors(pieces_, *optimizer_, [this](ParamKind k) { return Owns(k); }, true));
}

absl::Status Model::Load(const std::string& path, bool weights_only, std::string* user_json) {
  MOE_ASSIGN_OR_RETURN(CheckpointMeta meta, LoadCheckpoint(context_.device, context_.world, path, Tensors(pieces_, *optimizer_, [this](ParamKind k) { return Owns(k); }, !weights_only)));
  if (!weights_only) optimizer_->set_step(meta.step);
  if (user_json) *user_json = meta.user_json;
  return absl::OkStatus();
}

}  // namespace moe
