#include "core/checkpoint/shards.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace moe {
namespace {
constexpr size_t kOpenFiles = 64;
constexpr int64_t kPart = 1 << 20;   // a multiple of 8, as checksums in parts need it
}  // namespace

absl::StatusOr<const SafetensorsReader*> Shards::Open(const std::string& file) {
  auto it = open_.find(file);
  if (it == open_.end()) {
    if (open_.size() == kOpenFiles) open_.erase(std::min_element(open_.begin(), open_.end(), [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
    MOE_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsReader> reader, SafetensorsReader::Open(folder_ + "/" + file));
    it = open_.emplace(file, Reader{std::move(reader), 0}).first;
  }
  it->second.used = ++clock_;
  return it->second.file.get();
}

absl::Status Shards::Check(const StoredTensor& tensor, const StoredBlock& block) {
  if (!checked_.insert(&block).second) return absl::OkStatus();
  const std::string name = EntryName(tensor, block.block);
  const auto damaged = [&](const std::string& what) { return absl::DataLossError(absl::StrCat(folder_, "/", block.file, ": tensor ", name, " ", what)); };
  absl::StatusOr<const SafetensorsReader*> reader = Open(block.file);
  if (!reader.ok()) return Annotate(reader.status(), absl::StrCat("tensor ", name));
  const auto info = (*reader)->tensors().find(name);
  if (info == (*reader)->tensors().end()) return damaged("is not in the file, where the manifest says it is");
  if (info->second.dtype != tensor.dtype || info->second.shape != block.block.shape)
    return damaged(absl::StrCat("is ", info->second.dtype, "[", absl::StrJoin(info->second.shape, ","), "], in the manifest ", tensor.dtype, "[", absl::StrJoin(block.block.shape, ","), "]"));
  uint64_t sum = kChecksumStart;
  part_.resize(kPart);
  for (int64_t at = 0; at < info->second.bytes; at += kPart) {
    const int64_t n = std::min(kPart, info->second.bytes - at);
    MOE_RETURN_IF_ERROR((*reader)->ReadPart(name, at, part_.data(), n));
    sum = Checksum(part_.data(), n, sum);
  }
  if (absl::StrFormat("%016x", sum) != block.checksum) return damaged("has been altered (its checksum differs)");
  return absl::OkStatus();
}

absl::Status Shards::Read(const StoredTensor& tensor, const StoredBlock& block, const Block& wanted, char* out) {
  const std::string name = EntryName(tensor, block.block);
  MOE_ASSIGN_OR_RETURN(const SafetensorsReader* reader, Open(block.file));
  const ReadRange read = [&](int64_t offset, void* to, int64_t bytes) { return reader->ReadPart(name, offset, to, bytes); };
  return CopyCommon(block.block, wanted, SafetensorsElementSize(tensor.dtype), read, out);
}

}  // namespace moe
