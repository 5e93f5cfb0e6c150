#include "core/checkpoint/manifest.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "core/checkpoint/safetensors.h"
#include "nlohmann/json.hpp"

namespace moe {
namespace {

using Json = nlohmann::ordered_json;
constexpr char kFormat[] = "libmoe-checkpoint";
constexpr int kVersion = 2;   // 1 had whole tensors only

const Json* Member(const Json& object, const char* key) {
  const auto it = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && it != object.end() ? &*it : nullptr;
}

bool GetString(const Json& object, const char* key, std::string* out) {
  const Json* v = Member(object, key);
  if (!v || !v->is_string()) return false;
  *out = v->get<std::string>();
  return true;
}

// Numbers of at least 0; one beyond 63 bits comes out negative.
bool GetSizes(const Json& object, const char* key, std::vector<int64_t>* out) {
  const Json* v = Member(object, key);
  if (!v || !v->is_array()) return false;
  for (const Json& d : *v) {
    if (!d.is_number_integer() || d.get<int64_t>() < 0) return false;
    out->push_back(d.get<int64_t>());
  }
  return true;
}

absl::Status GetFile(const Json& object, StoredBlock* out) {
  if (!GetString(object, "file", &out->file) || !GetString(object, "checksum", &out->checksum)) return absl::DataLossError("lacks file or checksum");
  if (out->file.find('/') != std::string::npos) return absl::DataLossError("names a file outside its folder");
  return absl::OkStatus();
}

// A tensor that one block holds whole says so in the same words as version 1.
Json ToJson(const StoredTensor& t) {
  Json out = {{"name", t.name}, {"dtype", t.dtype}, {"shape", t.shape}};
  if (t.blocks.size() == 1 && t.blocks[0].block == WholeBlock(t.shape)) {
    out["file"] = t.blocks[0].file;
    out["checksum"] = t.blocks[0].checksum;
    return out;
  }
  out["blocks"] = Json::array();
  for (const StoredBlock& b : t.blocks) out["blocks"].push_back({{"file", b.file}, {"begin", b.block.begin}, {"shape", b.block.shape}, {"checksum", b.checksum}});
  return out;
}

absl::StatusOr<StoredTensor> FromJson(const Json& json, int64_t version) {
  StoredTensor t;
  const auto damaged = [&](absl::string_view what) { return absl::DataLossError(absl::StrCat("tensor ", t.name, " ", what)); };
  if (!GetString(json, "name", &t.name)) return absl::DataLossError("has a malformed entry of a tensor");
  if (!GetString(json, "dtype", &t.dtype) || !GetSizes(json, "shape", &t.shape)) return damaged("has a malformed dtype or shape");
  const Json* blocks = version >= 2 ? Member(json, "blocks") : nullptr;
  if (!blocks) {
    StoredBlock b{WholeBlock(t.shape), "", ""};
    const absl::Status s = GetFile(json, &b);
    if (!s.ok()) return damaged(s.message());
    t.blocks.push_back(std::move(b));
    return t;
  }
  if (!blocks->is_array()) return damaged("has a malformed list of blocks");
  for (const Json& block : *blocks) {
    StoredBlock b;
    if (!GetSizes(block, "begin", &b.block.begin) || !GetSizes(block, "shape", &b.block.shape)) return damaged("has a malformed block");
    const absl::Status s = GetFile(block, &b);
    if (!s.ok()) return damaged(absl::StrCat("has a block that ", s.message()));
    if (!LiesInside(b.block, t.shape)) return damaged(absl::StrCat("has a block in ", b.file, " that is not inside its shape [", absl::StrJoin(t.shape, ","), "]"));
    t.blocks.push_back(std::move(b));
  }
  return t;
}

absl::StatusOr<TensorList> ListFromJson(const Json& json, int64_t version) {
  TensorList list;
  for (const Json& entry : json) {
    MOE_ASSIGN_OR_RETURN(StoredTensor t, FromJson(entry, version));
    if (list.Find(t.name)) return absl::DataLossError(absl::StrCat("lists tensor ", t.name, " twice"));
    MOE_RETURN_IF_ERROR(list.Merge(std::move(t)));
  }
  return list;
}

Json ListToJson(const TensorList& list) {
  Json out = Json::array();
  for (const StoredTensor& t : list.tensors()) out.push_back(ToJson(t));
  return out;
}

}  // namespace

std::string StoredTensor::DebugString() const { return absl::StrCat(dtype, "[", absl::StrJoin(shape, ","), "]"); }

std::string EntryName(const StoredTensor& tensor, const Block& block) {
  return block == WholeBlock(tensor.shape) ? tensor.name : tensor.name + block.DebugString();
}

const StoredTensor* TensorList::Find(const std::string& name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

absl::Status TensorList::Merge(StoredTensor t) {
  const auto [it, added] = index_.emplace(t.name, tensors_.size());
  if (added) {
    tensors_.push_back(std::move(t));
    return absl::OkStatus();
  }
  StoredTensor& there = tensors_[it->second];
  if (there.dtype != t.dtype || there.shape != t.shape) return Internal("tensor ", t.name, " is ", there.DebugString(), " on one rank and ", t.DebugString(), " on another");
  // Of a tensor without elements several ranks may hold all; one of them is enough.
  if (WholeBlock(t.shape).empty() && !there.blocks.empty()) return absl::OkStatus();
  std::move(t.blocks.begin(), t.blocks.end(), std::back_inserter(there.blocks));
  return absl::OkStatus();
}

absl::Status TensorList::CheckComplete(absl::StatusCode code) const {
  for (const StoredTensor& t : tensors_) {
    std::vector<Block> blocks;
    for (const StoredBlock& b : t.blocks) blocks.push_back(b.block);
    const absl::optional<TilingFault> fault = FindTilingFault(t.shape, blocks);
    if (!fault) continue;
    std::vector<std::string> files;
    for (size_t i : fault->blocks) files.push_back(t.blocks[i].file);
    const std::string region = absl::StrCat("tensor ", t.name, " of ", t.DebugString(), ": its elements ", fault->region.DebugString());
    if (files.empty()) return absl::Status(code, absl::StrCat(region, " are missing, no block holds them"));
    return absl::Status(code, absl::StrCat(region, " are there ", files.size(), " times: blocks in ", absl::StrJoin(files, ", ")));
  }
  return absl::OkStatus();
}

std::string TensorList::Dump() const { return ListToJson(*this).dump(-1, ' ', false, Json::error_handler_t::replace); }

absl::StatusOr<TensorList> TensorList::Parse(const std::string& json) {
  const Json list = Json::parse(json, nullptr, false);
  if (!list.is_array()) return absl::DataLossError("is not a list of tensors");
  return ListFromJson(list, kVersion);
}

absl::Status WriteManifest(const std::string& folder, const Manifest& manifest) {
  Json m;
  m["format"] = kFormat;
  m["version"] = kVersion;
  m["step"] = manifest.meta.step;
  m["world_size"] = manifest.world_size;
  m["config"] = manifest.meta.config;
  m["user"] = manifest.meta.user_json.empty() ? Json(nullptr) : Json::parse(manifest.meta.user_json, nullptr, false);
  if (m["user"].is_discarded()) return InvalidArgument("user_json is not JSON");
  m["tensors"] = ListToJson(manifest.list);
  return WriteFileAtomically(folder + "/manifest.json", m.dump(1) + "\n");
}

absl::StatusOr<Manifest> ReadManifest(const std::string& folder) {
  const std::string file = folder + "/manifest.json";
  MOE_ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  const Json m = Json::parse(text, nullptr, false);
  const auto damaged = [&](absl::string_view what) { return absl::DataLossError(absl::StrCat(file, ": ", what)); };
  if (m.is_discarded() || !m.is_object()) return damaged("is not JSON (truncated?)");
  const Json *format = Member(m, "format"), *version = Member(m, "version"), *step = Member(m, "step"), *tensors = Member(m, "tensors"), *user = Member(m, "user");
  if (!format || *format != kFormat) return damaged("is not a manifest of libmoe");
  if (!version || (*version != 1 && *version != kVersion)) return damaged(absl::StrCat("has version ", version ? version->dump() : "none", ", this library reads 1 to ", kVersion));
  if (!step || !step->is_number_integer() || !tensors || !tensors->is_array()) return damaged("lacks step or tensors");
  Manifest out;
  out.meta.step = step->get<int64_t>();
  GetString(m, "config", &out.meta.config);
  if (user && !user->is_null()) out.meta.user_json = user->dump();
  absl::StatusOr<TensorList> list = ListFromJson(*tensors, version->get<int64_t>());
  if (!list.ok()) return Annotate(list.status(), file);
  out.list = *std::move(list);
  MOE_RETURN_IF_ERROR(Annotate(out.list.CheckComplete(absl::StatusCode::kDataLoss), file));
  return out;
}

}  // namespace moe
