#include "core/checkpoint/checkpoint.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <set>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/checkpoint/safetensors.h"
#include "core/comm/agree.h"
#include "nlohmann/json.hpp"

namespace moe {
namespace {

using Json = nlohmann::ordered_json;
constexpr char kFormat[] = "libmoe-checkpoint";
constexpr int kVersion = 1;

const char* SafetensorsDType(DType d) {
  switch (d) {
    case DType::kF32: return "F32";
    case DType::kF64: return "F64";
    case DType::kI32: return "I32";
    case DType::kI64: return "I64";
    case DType::kU8: return "U8";
  }
  return "";
}

int64_t RankOf(Communicator* world) { return world ? world->rank() : 0; }

// This rank's shard; its part of the manifest's list of tensors.
absl::StatusOr<Json> WriteShard(Device* device, Communicator* world, const std::string& folder, const std::vector<CheckpointTensor>& tensors) {
  const std::string file = absl::StrFormat("shard-%05d.safetensors", RankOf(world));
  std::vector<SafetensorsEntry> entries;
  std::vector<std::vector<char>> host;
  Json list = Json::array();
  for (const CheckpointTensor& t : tensors) {
    if (!t.owned) continue;
    host.emplace_back(t.view.bytes());
    MOE_RETURN_IF_ERROR(device->CopyToHost(host.back().data(), t.view));
    entries.push_back({t.name, SafetensorsDType(t.view.dtype()), t.view.shape(), host.back().data()});
  }
  if (entries.empty()) return list;
  MOE_ASSIGN_OR_RETURN(std::vector<uint64_t> sums, WriteSafetensors(folder + "/" + file, entries));
  for (size_t i = 0; i < entries.size(); ++i)
    list.push_back({{"name", entries[i].name}, {"dtype", entries[i].dtype}, {"shape", entries[i].shape}, {"file", file}, {"checksum", absl::StrFormat("%016x", sums[i])}});
  return list;
}

absl::Status WriteManifest(const std::string& folder, const std::string& path, const CheckpointMeta& meta, int64_t world_size, const std::vector<std::string>& parts) {
  Json tensors = Json::array();
  std::set<std::string> names;
  for (const std::string& part : parts) {
    for (const Json& t : Json::parse(part)) {
      if (!names.insert(t["name"].get<std::string>()).second) return Internal("two ranks write the tensor ", t["name"].get<std::string>());
      tensors.push_back(t);
    }
  }
  Json m;
  m["format"] = kFormat;
  m["version"] = kVersion;
  m["step"] = meta.step;
  m["world_size"] = world_size;
  m["config"] = meta.config;
  m["user"] = meta.user_json.empty() ? Json(nullptr) : Json::parse(meta.user_json, nullptr, false);
  if (m["user"].is_discarded()) return InvalidArgument("user_json is not JSON");
  m["tensors"] = std::move(tensors);
  MOE_RETURN_IF_ERROR(WriteFileAtomically(folder + "/manifest.json", m.dump(1) + "\n"));
  MOE_RETURN_IF_ERROR(SyncFolder(folder));
  if (::rename(folder.c_str(), path.c_str()) != 0) return FileError("rename", folder, errno);
  const std::filesystem::path parent = std::filesystem::absolute(path).parent_path();
  return SyncFolder(parent.string());
}

absl::Status MakeFolder(const std::string& path, const std::string& folder) {
  struct stat st;
  if (::stat(path.c_str(), &st) == 0) return absl::AlreadyExistsError(absl::StrCat("checkpoint ", path, " exists already; choose another path or remove it"));
  std::error_code error;
  std::filesystem::remove_all(folder, error);   // of a save that was killed
  if (::mkdir(folder.c_str(), 0755) != 0) return FileError("create", folder, errno);
  return absl::OkStatus();
}

struct Stored { std::string dtype, file, checksum; std::vector<int64_t> shape; };

absl::StatusOr<Json> ReadManifest(const std::string& path, std::map<std::string, Stored>* stored) {
  const std::string file = path + "/manifest.json";
  MOE_ASSIGN_OR_RETURN(std::string text, ReadFile(file));
  Json m = Json::parse(text, nullptr, false);
  const auto damaged = [&](const std::string& what) { return absl::DataLossError(absl::StrCat(file, ": ", what)); };
  if (m.is_discarded() || !m.is_object()) return damaged("is not JSON (truncated?)");
  if (!m.contains("format") || m["format"] != kFormat) return damaged("is not a manifest of libmoe");
  if (!m.contains("version") || m["version"] != kVersion) return damaged(absl::StrCat("has version ", m.contains("version") ? m["version"].dump() : "none", ", this library reads ", kVersion));
  if (!m.contains("step") || !m["step"].is_number_integer() || !m.contains("tensors") || !m["tensors"].is_array()) return damaged("lacks step or tensors");
  for (const Json& t : m["tensors"]) {
    const bool formed = t.is_object() && t.contains("name") && t["name"].is_string() && t.contains("dtype") && t["dtype"].is_string() && t.contains("file") && t["file"].is_string() &&
                        t.contains("checksum") && t["checksum"].is_string() && t.contains("shape") && t["shape"].is_array();
    if (!formed) return damaged("has a malformed entry of a tensor");
    Stored s{t["dtype"].get<std::string>(), t["file"].get<std::string>(), t["checksum"].get<std::string>(), {}};
    if (s.file.find('/') != std::string::npos) return damaged("names a file outside its folder");
    for (const Json& d : t["shape"]) {
      if (!d.is_number_integer()) return damaged("has a malformed shape");
      s.shape.push_back(d.get<int64_t>());
    }
    if (!stored->emplace(t["name"].get<std::string>(), std::move(s)).second) return damaged(absl::StrCat("lists tensor ", t["name"].get<std::string>(), " twice"));
  }
  return m;
}

// Reads what this rank wants; with `apply` into the tensors, else only checking.
absl::Status ReadTensors(Device* device, const std::string& path, const std::map<std::string, Stored>& stored, const std::vector<CheckpointTensor>& tensors, bool apply) {
  std::map<std::string, std::unique_ptr<SafetensorsReader>> shards;
  std::vector<char> host;
  for (const CheckpointTensor& t : tensors) {
    const auto it = stored.find(t.name);
    if (it == stored.end()) {
      if (!t.required) continue;
      return absl::FailedPreconditionError(absl::StrCat(path, " holds no tensor ", t.name, "; was it written by a model of another shape or optimizer?"));
    }
    const Stored& s = it->second;
    if (s.shape != t.view.shape() || s.dtype != SafetensorsDType(t.view.dtype())) {
      return absl::FailedPreconditionError(absl::StrCat(path, ": tensor ", t.name, " is ", s.dtype, "[", absl::StrJoin(s.shape, ","), "] there and ", t.view.DebugString(), " in this model"));
    }
    auto& reader = shards[s.file];
    if (!reader) {
      MOE_ASSIGN_OR_RETURN(reader, SafetensorsReader::Open(path + "/" + s.file));
    }
    host.resize(t.view.bytes());
    MOE_RETURN_IF_ERROR(reader->Read(t.name, host.data(), t.view.bytes()));
    if (absl::StrFormat("%016x", Checksum(host.data(), t.view.bytes())) != s.checksum)
      return absl::DataLossError(absl::StrCat(path, "/", s.file, ": tensor ", t.name, " has been altered (its checksum differs)"));
    if (apply) MOE_RETURN_IF_ERROR(device->CopyFromHost(t.view, host.data()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SaveCheckpoint(Device* device, Communicator* world, const std::string& path, const CheckpointMeta& meta, const std::vector<CheckpointTensor>& tensors) {
  const std::string folder = path + ".tmp";
  const bool leader = RankOf(world) == 0;
  MOE_RETURN_IF_ERROR(Agree(world, leader ? MakeFolder(path, folder) : absl::OkStatus()));
  absl::StatusOr<Json> mine = WriteShard(device, world, folder, tensors);
  absl::Status done = Agree(world, mine.status());
  if (done.ok()) {
    MOE_ASSIGN_OR_RETURN(std::vector<std::string> parts, AllGatherStrings(world, mine->dump()));
    done = Agree(world, leader ? WriteManifest(folder, path, meta, world ? world->size() : 1, parts) : absl::OkStatus());
  }
  if (!done.ok() && leader) {
    std::error_code error;
    std::filesystem::remove_all(folder, error);
  }
  return done;
}

absl::StatusOr<CheckpointMeta> LoadCheckpoint(Device* device, Communicator* world, const std::string& path, const std::vector<CheckpointTensor>& tensors) {
  std::map<std::string, Stored> stored;
  absl::StatusOr<Json> manifest = ReadManifest(path, &stored);
  MOE_RETURN_IF_ERROR(Agree(world, manifest.status()));
  MOE_RETURN_IF_ERROR(Agree(world, ReadTensors(device, path, stored, tensors, false)));
  MOE_RETURN_IF_ERROR(Agree(world, ReadTensors(device, path, stored, tensors, true)));
  CheckpointMeta meta;
  meta.step = (*manifest)["step"].get<int64_t>();
  if (manifest->contains("config") && (*manifest)["config"].is_string()) meta.config = (*manifest)["config"].get<std::string>();
  if (manifest->contains("user") && !(*manifest)["user"].is_null()) meta.user_json = (*manifest)["user"].dump();
  return meta;
}

}  // namespace moe
