// The shards of a checkpoint that is being loaded, opened when they are needed.
#ifndef MOE_CORE_CHECKPOINT_SHARDS_H_
#define MOE_CORE_CHECKPOINT_SHARDS_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/checkpoint/manifest.h"
#include "core/checkpoint/safetensors.h"

namespace moe {

class Shards {
 public:
  explicit Shards(std::string folder) : folder_(std::move(folder)) {}

  // That the block is in its file as the manifest says, by dtype, shape and checksum. DATA_LOSS names file and tensor. Reads
  // it in small parts, and only the first time it is asked about.
  absl::Status Check(const StoredTensor& tensor, const StoredBlock& block);
  // Copies what the block and `wanted` have in common to `out`, the memory of `wanted`.
  absl::Status Read(const StoredTensor& tensor, const StoredBlock& block, const Block& wanted, char* out);

 private:
  // Valid until the next call: of thousands of shards not all can be open at once.
  absl::StatusOr<const SafetensorsReader*> Open(const std::string& file);

  struct Reader { std::unique_ptr<SafetensorsReader> file; int64_t used = 0; };
  const std::string folder_;
  std::map<std::string, Reader> open_;
  int64_t clock_ = 0;
  std::set<const StoredBlock*> checked_;
  std::vector<char> part_;
};

}  // namespace moe
#endif  // MOE_CORE_CHECKPOINT_SHARDS_H_
