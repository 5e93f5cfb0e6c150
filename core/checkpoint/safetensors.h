// Files in the safetensors format: 8 bytes little-endian header length, a JSON header, the tensors' bytes.
// https://github.com/huggingface/safetensors describes it. Nothing of a file is trusted before it is checked.
#ifndef MOE_CORE_CHECKPOINT_SAFETENSORS_H_
#define MOE_CORE_CHECKPOINT_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace moe {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;            // "F32", "F64", "I32", "I64", "U8", "BF16", "F16"
  std::vector<int64_t> shape;
  const void* data = nullptr;   // row-major, contiguous
};

// Bytes of one element, 0: a dtype that is not known here.
int64_t SafetensorsElementSize(const std::string& dtype);

// FNV-1a, 64 bits, over 8-byte words and then the rest: finds damage, is no protection against forgery.
uint64_t Checksum(const void* data, int64_t bytes);

// Writes `path` whole or not at all: a temporary name, fsync, rename. Checksums of the tensors in order. RESOURCE_EXHAUSTED
// when the disk is full, PERMISSION_DENIED, ... name the file.
absl::StatusOr<std::vector<uint64_t>> WriteSafetensors(const std::string& path, const std::vector<SafetensorsEntry>& entries);

class SafetensorsReader {
 public:
  struct Info { std::string dtype; std::vector<int64_t> shape; int64_t begin = 0, bytes = 0; };

  // Reads and checks the header: sizes, ranges, overlaps, duplicates. NOT_FOUND or DATA_LOSS naming the file and tensor.
  static absl::StatusOr<std::unique_ptr<SafetensorsReader>> Open(const std::string& path);
  ~SafetensorsReader();
  const std::map<std::string, Info>& tensors() const { return tensors_; }
  // The stored bytes, whole.
  absl::Status Read(const std::string& name, void* out, int64_t bytes) const;
  // Any floating-point dtype as doubles.
  absl::StatusOr<std::vector<double>> ReadDoubles(const std::string& name) const;
  absl::StatusOr<std::vector<int64_t>> ReadInts(const std::string& name) const;

 private:
  SafetensorsReader() = default;
  absl::StatusOr<const Info*> Find(const std::string& name) const;
  std::string path_;
  int fd_ = -1;
  int64_t data_begin_ = 0;
  std::map<std::string, Info> tensors_;
};

// ---- files, shared with the manifest
// errno as a status that names what was done to which path.
absl::Status FileError(const std::string& what, const std::string& path, int error);
// Writes text whole or not at all, synced.
absl::Status WriteFileAtomically(const std::string& path, const std::string& text);
absl::StatusOr<std::string> ReadFile(const std::string& path);
absl::Status SyncFolder(const std::string& path);

}  // namespace moe
#endif  // MOE_CORE_CHECKPOINT_SAFETENSORS_H_
