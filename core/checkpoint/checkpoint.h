// Checkpoints: a folder with manifest.json and one safetensors shard per rank that writes. Tensors stand under global,
// layout-free names, each element once, in blocks with a checksum each; state of the optimizer under "optimizer.<state>.<name>".
// How a tensor was cut when it was saved is of no importance when it is loaded. A folder is made under a temporary name,
// synced and renamed: it is there whole or not at all. docs/checkpoint.md describes the files.
#ifndef MOE_CORE_CHECKPOINT_CHECKPOINT_H_
#define MOE_CORE_CHECKPOINT_CHECKPOINT_H_

#include <functional>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/device/device.h"

namespace moe {

struct CheckpointTensor {
  std::string name;
  TensorView view;          // contiguous, on the device: a block of the tensor with that name
  // Of the whole tensor, and where the block starts in it, one number per dimension. Empty: the view is the whole tensor.
  std::vector<int64_t> global_shape, begin;
  bool owned = true;        // this rank writes it
  bool required = true;     // loading fails without it
};

struct CheckpointMeta {
  int64_t step = 0;
  std::string config;       // protobuf text
  std::string user_json;    // "" or JSON
};

// Collective over `world` (null: one rank). The blocks that ranks own of a tensor must hold each of its elements exactly once;
// else INTERNAL names the tensor and the elements that are missing or double. Blocks may have no elements, ranks may own
// nothing, and one rank may own several blocks of a tensor. Errors of one rank are errors of all, and nothing is left behind.
// Of the tensors, one block at a time is copied to the host.
absl::Status SaveCheckpoint(Device* device, Communicator* world, const std::string& path, const CheckpointMeta& meta, const std::vector<CheckpointTensor>& tensors);

// Collective. A block is put together from all stored blocks that have elements of it. Everything that this rank wants is
// checked (names, shapes, the checksum of each stored block once) before the first tensor is changed, on all ranks; then only
// the bytes that are wanted are read. DATA_LOSS names file and tensor. Checkpoints of version 1 are read too.
absl::StatusOr<CheckpointMeta> LoadCheckpoint(Device* device, Communicator* world, const std::string& path, const std::vector<CheckpointTensor>& tensors);

}  // namespace moe
#endif  // MOE_CORE_CHECKPOINT_CHECKPOINT_H_
