#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/safetensors_layout.h"
#include "nlohmann/json.hpp"

namespace moe {
namespace {

using Json = nlohmann::json;

// JSON is UTF-8, and so are the names in it.
bool IsUtf8(const std::string& name) {
  const std::string text = Json(name).dump(-1, ' ', false, Json::error_handler_t::ignore);
  return Json::parse(text) == Json(name);
}

absl::StatusOr<std::string> Header(const std::vector<SafetensorsEntry>& entries) {
  Json header = Json::object();
  int64_t at = 0, end = 0;
  for (const SafetensorsEntry& e : entries) {
    const int64_t width = SafetensorsElementSize(e.dtype), bytes = SafetensorsBytes(e.shape, width);
    if (!IsUtf8(e.name) || e.name == "__metadata__") return InvalidArgument("safetensors: '", e.name, "' cannot be the name of a tensor");
    if (width == 0) return InvalidArgument("safetensors: tensor ", e.name, " has dtype '", e.dtype, "', which is not one of the format");
    if (bytes < 0 || __builtin_add_overflow(at, bytes, &end)) return InvalidArgument("safetensors: the shape of tensor ", e.name, " is negative or too large");
    if (header.contains(e.name)) return InvalidArgument("safetensors: two tensors are named ", e.name);
    header[e.name] = {{"dtype", e.dtype}, {"shape", e.shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');   // tensors start on 8 bytes
  if (static_cast<int64_t>(text.size()) > kLargestSafetensorsHeader)
    return InvalidArgument("safetensors: the header for ", entries.size(), " tensors has ", text.size(), " bytes, more than the format's ", kLargestSafetensorsHeader);
  return text;
}

}  // namespace

uint64_t Checksum(const void* data, int64_t bytes, uint64_t h) {
  constexpr uint64_t kPrime = 0x100000001b3ull;
  const unsigned char* p = static_cast<const unsigned char*>(data);
  for (; bytes >= 8; bytes -= 8, p += 8) {
    uint64_t w;
    std::memcpy(&w, p, 8);
    h = (h ^ w) * kPrime;
    h ^= h >> 32;   // multiplication only carries upwards
  }
  for (; bytes > 0; --bytes) h = (h ^ *p++) * kPrime;
  return h;
}

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(const std::string& path, const std::vector<SafetensorsEntry>& entries) {
  MOE_ASSIGN_OR_RETURN(const std::string header, Header(entries));
  std::unique_ptr<SafetensorsWriter> w(new SafetensorsWriter());
  w->path_ = path;
  w->tmp_ = path + ".tmp";
  for (const SafetensorsEntry& e : entries) {
    w->names_.push_back(e.name);
    w->bytes_.push_back(SafetensorsBytes(e.shape, SafetensorsElementSize(e.dtype)));
  }
  w->sums_.assign(entries.size(), kChecksumStart);
  w->fd_ = ::open(w->tmp_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (w->fd_ < 0) return FileError("create", w->tmp_, errno);
  const uint64_t size = header.size();
  MOE_RETURN_IF_ERROR(WriteAll(w->fd_, w->tmp_, &size, 8));
  MOE_RETURN_IF_ERROR(WriteAll(w->fd_, w->tmp_, header.data(), static_cast<int64_t>(header.size())));
  w->SkipEmpty();
  return w;
}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(tmp_.c_str());
}

void SafetensorsWriter::SkipEmpty() {
  while (tensor_ < bytes_.size() && at_ == bytes_[tensor_]) {
    ++tensor_;
    at_ = 0;
  }
}

absl::Status SafetensorsWriter::Write(const void* data, int64_t bytes) {
  if (fd_ < 0) return FailedPrecondition("safetensors: ", path_, " is finished");
  if (bytes == 0) return absl::OkStatus();
  const int64_t left = tensor_ < bytes_.size() ? bytes_[tensor_] - at_ : 0;
  const std::string where = tensor_ < names_.size() ? absl::StrCat("tensor ", names_[tensor_]) : "the last tensor";
  if (data == nullptr) return InvalidArgument("safetensors: ", where, " has no data");
  if (bytes < 0 || bytes > left) return InvalidArgument("safetensors: ", bytes, " bytes for ", where, ", of which ", left, " are left");
  if (bytes < left && bytes % 8 != 0) return InvalidArgument("safetensors: a part of ", where, " has ", bytes, " bytes; all but the last must be multiples of 8");
  MOE_RETURN_IF_ERROR(WriteAll(fd_, tmp_, data, bytes));
  sums_[tensor_] = Checksum(data, bytes, sums_[tensor_]);
  at_ += bytes;
  SkipEmpty();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint64_t>> SafetensorsWriter::Finish() {
  if (fd_ < 0) return FailedPrecondition("safetensors: ", path_, " is finished");
  if (tensor_ < bytes_.size()) return FailedPrecondition("safetensors: tensor ", names_[tensor_], " of ", path_, " lacks ", bytes_[tensor_] - at_, " bytes");
  absl::Status s;
  if (::fsync(fd_) != 0) s = FileError("sync", tmp_, errno);
  if (::close(fd_) != 0 && s.ok()) s = FileError("close", tmp_, errno);
  fd_ = -1;
  if (s.ok() && ::rename(tmp_.c_str(), path_.c_str()) != 0) s = FileError("rename", tmp_, errno);
  if (!s.ok()) {
    ::unlink(tmp_.c_str());
    return s;
  }
  return std::move(sums_);
}

absl::StatusOr<std::vector<uint64_t>> WriteSafetensors(const std::string& path, const std::vector<SafetensorsEntry>& entries) {
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsWriter> w, SafetensorsWriter::Create(path, entries));
  for (const SafetensorsEntry& e : entries) MOE_RETURN_IF_ERROR(w->Write(e.data, SafetensorsBytes(e.shape, SafetensorsElementSize(e.dtype))));
  return w->Finish();
}

}  // namespace moe
