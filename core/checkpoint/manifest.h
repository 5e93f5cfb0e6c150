// manifest.json of a checkpoint: which tensors there are, and which blocks of them stand in which file with which checksum.
// docs/checkpoint.md describes the format.
#ifndef MOE_CORE_CHECKPOINT_MANIFEST_H_
#define MOE_CORE_CHECKPOINT_MANIFEST_H_

#include <map>
#include <string>
#include <vector>

#include "core/checkpoint/block.h"
#include "core/checkpoint/checkpoint.h"

namespace moe {

struct StoredBlock {
  Block block;
  std::string file;       // in the checkpoint's folder
  std::string checksum;   // 16 hexadecimal digits
};

struct StoredTensor {
  std::string name, dtype;       // dtype as safetensors calls it
  std::vector<int64_t> shape;    // of the whole tensor
  std::vector<StoredBlock> blocks;
  std::string DebugString() const;   // "F32[8,16]"
};

// What the entry of a block is called inside its file: whole tensors by their name, other blocks "name[0:4,8:16]".
std::string EntryName(const StoredTensor& tensor, const Block& block);

class TensorList {
 public:
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  // Null: there is none.
  const StoredTensor* Find(const std::string& name) const;
  // Adds a tensor, or its blocks to those that are there. INTERNAL naming the tensor when dtype or shape differ from before.
  absl::Status Merge(StoredTensor tensor);
  // Every tensor is there exactly once; the error names the tensor and what is missing or double. Its code: of the caller.
  absl::Status CheckComplete(absl::StatusCode code) const;

  // JSON. Parsing trusts nothing: errors say what is malformed. Blocks need version 2.
  std::string Dump() const;
  static absl::StatusOr<TensorList> Parse(const std::string& json);

 private:
  std::vector<StoredTensor> tensors_;
  std::map<std::string, size_t> index_;
};

struct Manifest {
  CheckpointMeta meta;
  int64_t world_size = 1;   // of the job that wrote it
  TensorList list;
};

// Synced, whole or not at all.
absl::Status WriteManifest(const std::string& folder, const Manifest& manifest);
// Of version 1 or 2. DATA_LOSS names the file and what is wrong in it, gaps and overlaps included.
absl::StatusOr<Manifest> ReadManifest(const std::string& folder);

}  // namespace moe
#endif  // MOE_CORE_CHECKPOINT_MANIFEST_H_
