#include "core/checkpoint/checkpoint.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <map>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/shards.h"
#include "core/comm/agree.h"

namespace moe {
namespace {

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

// The tensor as a file would hold it, without blocks.
StoredTensor WholeOf(const CheckpointTensor& t) {
  return {t.name, SafetensorsDType(t.view.dtype()), t.global_shape.empty() ? t.view.shape() : t.global_shape, {}};
}

absl::StatusOr<Block> BlockOf(const CheckpointTensor& t) {
  if (!t.view.defined() || !t.view.contiguous()) return Internal("checkpoint: tensor ", t.name, " has no contiguous memory");
  if (t.global_shape.empty() && t.begin.empty()) return WholeBlock(t.view.shape());
  const Block b{t.begin, t.view.shape()};
  if (!LiesInside(b, t.global_shape)) {
    return Internal("checkpoint: tensor ", t.name, ": the block [", absl::StrJoin(b.shape, ","), "] from [", absl::StrJoin(b.begin, ","), "] is not inside the tensor's shape [",
                    absl::StrJoin(t.global_shape, ","), "]");
  }
  return b;
}

// This rank's shard; its part of the list of tensors. One block is in memory at a time.
absl::StatusOr<TensorList> WriteShard(Device* device, Communicator* world, const std::string& folder, const std::vector<CheckpointTensor>& tensors) {
  const std::string file = absl::StrFormat("shard-%05d.safetensors", RankOf(world));
  std::vector<StoredTensor> mine;             // a block in each
  std::vector<const CheckpointTensor*> from;
  std::vector<SafetensorsEntry> entries;
  TensorList list;
  for (const CheckpointTensor& t : tensors) {
    MOE_ASSIGN_OR_RETURN(const Block block, BlockOf(t));
    if (!t.owned) continue;
    StoredTensor stored = WholeOf(t);
    if (block.empty() && block != WholeBlock(stored.shape)) {
      // Nothing to store; of a tensor without elements the manifest still tells name and shape.
      if (WholeBlock(stored.shape).empty()) MOE_RETURN_IF_ERROR(list.Merge(std::move(stored)));
      continue;
    }
    entries.push_back({EntryName(stored, block), stored.dtype, block.shape, nullptr});
    stored.blocks.push_back({block, file, ""});
    mine.push_back(std::move(stored));
    from.push_back(&t);
  }
  if (entries.empty()) return list;
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsWriter> writer, SafetensorsWriter::Create(folder + "/" + file, entries));
  std::vector<char> host;
  for (const CheckpointTensor* t : from) {
    host.resize(t->view.bytes());
    MOE_RETURN_IF_ERROR(device->CopyToHost(host.data(), t->view));
    MOE_RETURN_IF_ERROR(writer->Write(host.data(), t->view.bytes()));
  }
  MOE_ASSIGN_OR_RETURN(const std::vector<uint64_t> sums, writer->Finish());
  for (size_t i = 0; i < mine.size(); ++i) {
    mine[i].blocks[0].checksum = absl::StrFormat("%016x", sums[i]);
    MOE_RETURN_IF_ERROR(list.Merge(std::move(mine[i])));
  }
  return list;
}

// The list of all ranks, the same on each. Also what this rank does not own must be in it: a tensor that every rank leaves to
// another would be missed only when it is loaded.
absl::StatusOr<TensorList> MergeLists(const std::vector<std::string>& parts, const std::vector<CheckpointTensor>& tensors) {
  TensorList all;
  for (const std::string& part : parts) {
    MOE_ASSIGN_OR_RETURN(const TensorList list, TensorList::Parse(part));
    for (const StoredTensor& t : list.tensors()) MOE_RETURN_IF_ERROR(all.Merge(t));
  }
  MOE_RETURN_IF_ERROR(all.CheckComplete(absl::StatusCode::kInternal));
  for (const CheckpointTensor& t : tensors) {
    StoredTensor mine = WholeOf(t);
    if (!all.Find(t.name)) return Internal("tensor ", t.name, " of ", mine.DebugString(), " is missing: no rank owns any of it");
    MOE_RETURN_IF_ERROR(all.Merge(std::move(mine)));   // compares dtype and shape
  }
  return all;
}

absl::Status MakeFolder(const std::string& path, const std::string& folder) {
  struct stat st;
  if (::stat(path.c_str(), &st) == 0) return absl::AlreadyExistsError(absl::StrCat("checkpoint ", path, " exists already; choose another path or remove it"));
  std::error_code error;
  std::filesystem::remove_all(folder, error);   // of a save that was killed
  if (::mkdir(folder.c_str(), 0755) != 0) return FileError("create", folder, errno);
  return absl::OkStatus();
}

// The moment from which the checkpoint is there.
absl::Status Publish(const std::string& folder, const std::string& path) {
  MOE_RETURN_IF_ERROR(SyncFolder(folder));
  if (::rename(folder.c_str(), path.c_str()) != 0) return FileError("rename", folder, errno);
  const std::filesystem::path parent = std::filesystem::absolute(path).parent_path();
  return SyncFolder(parent.string());
}

absl::Status WriteAllShards(Device* device, Communicator* world, const std::string& folder, const CheckpointMeta& meta, const std::vector<CheckpointTensor>& tensors) {
  const absl::StatusOr<TensorList> mine = WriteShard(device, world, folder, tensors);
  MOE_RETURN_IF_ERROR(Agree(world, mine.status()));
  MOE_ASSIGN_OR_RETURN(const std::vector<std::string> parts, AllGatherStrings(world, mine->Dump()));
  absl::StatusOr<TensorList> all = MergeLists(parts, tensors);
  MOE_RETURN_IF_ERROR(Agree(world, all.status()));
  const Manifest manifest{meta, world ? world->size() : 1, *std::move(all)};
  return Agree(world, RankOf(world) == 0 ? WriteManifest(folder, manifest) : absl::OkStatus());
}

// A block that this rank wants, and the tensor that has it.
struct Wanted {
  const CheckpointTensor* tensor;
  Block block;
  const StoredTensor* stored;
};

absl::StatusOr<std::vector<Wanted>> Match(const std::string& path, const TensorList& list, const std::vector<CheckpointTensor>& tensors) {
  std::vector<Wanted> out;
  for (const CheckpointTensor& t : tensors) {
    MOE_ASSIGN_OR_RETURN(Block block, BlockOf(t));
    const StoredTensor* stored = list.Find(t.name);
    if (!stored) {
      if (!t.required) continue;
      return absl::FailedPreconditionError(absl::StrCat(path, " holds no tensor ", t.name, "; was it written by a model of another shape or optimizer?"));
    }
    const StoredTensor mine = WholeOf(t);
    if (stored->shape != mine.shape || stored->dtype != mine.dtype)
      return absl::FailedPreconditionError(absl::StrCat(path, ": tensor ", t.name, " is ", stored->DebugString(), " there and ", mine.DebugString(), " in this model"));
    out.push_back({&t, std::move(block), stored});
  }
  return out;
}

// File by file, so that each is read from its beginning to its end.
absl::Status CheckBlocks(const std::vector<Wanted>& wanted, Shards* shards) {
  std::map<std::string, std::vector<std::pair<const StoredTensor*, const StoredBlock*>>> by_file;
  for (const Wanted& w : wanted)
    for (const StoredBlock& b : w.stored->blocks)
      if (Intersection(b.block, w.block)) by_file[b.file].push_back({w.stored, &b});
  for (const auto& [file, blocks] : by_file)
    for (const auto& [tensor, block] : blocks) MOE_RETURN_IF_ERROR(shards->Check(*tensor, *block));
  return absl::OkStatus();
}

absl::Status ReadBlocks(Device* device, const std::vector<Wanted>& wanted, Shards* shards) {
  std::vector<char> host;
  for (const Wanted& w : wanted) {
    host.resize(w.tensor->view.bytes());
    for (const StoredBlock& b : w.stored->blocks) MOE_RETURN_IF_ERROR(shards->Read(*w.stored, b, w.block, host.data()));
    MOE_RETURN_IF_ERROR(device->CopyFromHost(w.tensor->view, host.data()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SaveCheckpoint(Device* device, Communicator* world, const std::string& path, const CheckpointMeta& meta, const std::vector<CheckpointTensor>& tensors) {
  const std::string folder = path + ".tmp";
  const bool leader = RankOf(world) == 0;
  MOE_RETURN_IF_ERROR(Agree(world, leader ? MakeFolder(path, folder) : absl::OkStatus()));
  absl::Status done = WriteAllShards(device, world, folder, meta, tensors);
  if (done.ok()) done = Agree(world, leader ? Publish(folder, path) : absl::OkStatus());
  if (!done.ok() && leader) {
    std::error_code error;
    std::filesystem::remove_all(folder, error);
  }
  return done;
}

absl::StatusOr<CheckpointMeta> LoadCheckpoint(Device* device, Communicator* world, const std::string& path, const std::vector<CheckpointTensor>& tensors) {
  absl::StatusOr<Manifest> manifest = ReadManifest(path);
  MOE_RETURN_IF_ERROR(Agree(world, manifest.status()));
  Shards shards(path);
  const absl::StatusOr<std::vector<Wanted>> wanted = Match(path, manifest->list, tensors);
  MOE_RETURN_IF_ERROR(Agree(world, wanted.ok() ? CheckBlocks(*wanted, &shards) : wanted.status()));
  MOE_RETURN_IF_ERROR(Agree(world, ReadBlocks(device, *wanted, &shards)));
  return std::move(manifest->meta);
}

}  // namespace moe
