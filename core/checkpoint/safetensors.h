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
  std::string dtype;            // "F32", "F64", "I32", "I64", "U8", "BF16", "F16", ...
  std::vector<int64_t> shape;
  const void* data = nullptr;   // row-major, contiguous; of no meaning to SafetensorsWriter
};

// Bytes of one element, 0: a dtype that is not known here.
int64_t SafetensorsElementSize(const std::string& dtype);

// FNV-1a, 64 bits, over 8-byte words and then the rest: finds damage, is no protection against forgery. In parts: give what the
// last call returned; every part but the last must be a multiple of 8 bytes.
constexpr uint64_t kChecksumStart = 0xcbf29ce484222325ull;
uint64_t Checksum(const void* data, int64_t bytes, uint64_t before = kChecksumStart);

// Writes `path` whole or not at all: under a temporary name, fsync, rename. RESOURCE_EXHAUSTED when the disk is full,
// PERMISSION_DENIED, ... name the file. Tensors may come in parts, so that none needs to be in memory whole.
class SafetensorsWriter {
 public:
  // INVALID_ARGUMENT naming the tensor when dtype, shape or name will not do.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(const std::string& path, const std::vector<SafetensorsEntry>& entries);
  ~SafetensorsWriter();   // without Finish nothing is left behind
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // The next bytes of the tensors, in the order of `entries`. A call may neither cross the end of a tensor nor, unless it
  // reaches it, be other than a multiple of 8 bytes.
  absl::Status Write(const void* data, int64_t bytes);
  // Only now the file has its name. Checksums of the tensors in order.
  absl::StatusOr<std::vector<uint64_t>> Finish();

 private:
  SafetensorsWriter() = default;
  void SkipEmpty();

  std::string path_, tmp_;
  int fd_ = -1;
  std::vector<std::string> names_;
  std::vector<int64_t> bytes_;
  size_t tensor_ = 0;     // being written
  int64_t at_ = 0;        // bytes of it that are written
  std::vector<uint64_t> sums_;
};

// The same at once, from memory.
absl::StatusOr<std::vector<uint64_t>> WriteSafetensors(const std::string& path, const std::vector<SafetensorsEntry>& entries);

class SafetensorsReader {
 public:
  struct Info { std::string dtype; std::vector<int64_t> shape; int64_t begin = 0, bytes = 0; };

  // Reads and checks the header: sizes, ranges, overlaps, holes, duplicates. NOT_FOUND or DATA_LOSS naming the file and tensor.
  static absl::StatusOr<std::unique_ptr<SafetensorsReader>> Open(const std::string& path);
  ~SafetensorsReader();
  SafetensorsReader(const SafetensorsReader&) = delete;
  SafetensorsReader& operator=(const SafetensorsReader&) = delete;

  const std::map<std::string, Info>& tensors() const { return tensors_; }
  // The stored bytes, whole. DATA_LOSS when there are not exactly so many.
  absl::Status Read(const std::string& name, void* out, int64_t bytes) const;
  // Bytes [offset, offset + bytes) of a tensor. OUT_OF_RANGE when it ends earlier.
  absl::Status ReadPart(const std::string& name, int64_t offset, void* out, int64_t bytes) const;
  // Any floating-point dtype (F64, F32, F16, BF16), converted.
  absl::StatusOr<std::vector<double>> ReadDoubles(const std::string& name) const;
  absl::StatusOr<std::vector<float>> ReadFloats(const std::string& name) const;
  // I64, I32 or U8.
  absl::StatusOr<std::vector<int64_t>> ReadInts(const std::string& name) const;

 private:
  SafetensorsReader() = default;
  absl::StatusOr<const Info*> Find(const std::string& name) const;
  template <typename T> absl::StatusOr<std::vector<T>> ReadAs(const std::string& name) const;

  std::string path_;
  int fd_ = -1;
  int64_t data_begin_ = 0;
  std::map<std::string, Info> tensors_;
};

// ---- files, shared with the manifest
// errno as a status that names what was done to which path.
absl::Status FileError(const std::string& what, const std::string& path, int error);
absl::Status WriteAll(int fd, const std::string& path, const void* data, int64_t bytes);
// DATA_LOSS when the file ends before.
absl::Status ReadAllAt(int fd, const std::string& path, int64_t at, void* out, int64_t bytes);
// Writes text whole or not at all, synced.
absl::Status WriteFileAtomically(const std::string& path, const std::string& text);
absl::StatusOr<std::string> ReadFile(const std::string& path);
absl::Status SyncFolder(const std::string& path);

}  // namespace moe
#endif  // MOE_CORE_CHECKPOINT_SAFETENSORS_H_
