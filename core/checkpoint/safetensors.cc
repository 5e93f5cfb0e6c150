#include "core/checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "nlohmann/json.hpp"

namespace moe {
namespace {

using Json = nlohmann::ordered_json;
constexpr int64_t kLargestHeader = int64_t{100} << 20;

absl::Status Damaged(const std::string& path, const std::string& what) { return absl::DataLossError(absl::StrCat(path, ": ", what)); }

absl::Status WriteAll(int fd, const std::string& path, const void* data, int64_t bytes) {
  const char* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(fd, p, static_cast<size_t>(std::min<int64_t>(bytes, int64_t{1} << 30)));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError("write", path, errno);
    p += n;
    bytes -= n;
  }
  return absl::OkStatus();
}

absl::Status ReadAll(int fd, const std::string& path, int64_t at, void* out, int64_t bytes) {
  char* p = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t n = ::pread(fd, p, static_cast<size_t>(std::min<int64_t>(bytes, int64_t{1} << 30)), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError("read", path, errno);
    if (n == 0) return Damaged(path, absl::StrCat("ends ", bytes, " bytes too early"));
    p += n;
    at += n;
    bytes -= n;
  }
  return absl::OkStatus();
}

// Elements of a shape; -1 when it is nonsense.
int64_t Elements(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (int64_t d : shape)
    if (d < 0 || __builtin_mul_overflow(n, d, &n)) return -1;
  return n;
}

double FromHalf(uint16_t h) {
  const int exponent = (h >> 10) & 31, mantissa = h & 1023;
  double v = exponent == 0 ? std::ldexp(mantissa, -24) : exponent == 31 ? (mantissa ? NAN : HUGE_VAL) : std::ldexp(1024 + mantissa, exponent - 25);
  return h & 0x8000 ? -v : v;
}
double FromBfloat(uint16_t h) {
  const uint32_t bits = static_cast<uint32_t>(h) << 16;
  float f;
  std::memcpy(&f, &bits, sizeof(f));
  return f;
}

template <typename T, typename F>
std::vector<double> Convert(const std::vector<char>& raw, F f) {
  std::vector<double> out(raw.size() / sizeof(T));
  for (size_t i = 0; i < out.size(); ++i) {
    T v;
    std::memcpy(&v, raw.data() + i * sizeof(T), sizeof(T));
    out[i] = f(v);
  }
  return out;
}

}  // namespace

int64_t SafetensorsElementSize(const std::string& d) {
  if (d == "F64" || d == "I64") return 8;
  if (d == "F32" || d == "I32") return 4;
  if (d == "BF16" || d == "F16") return 2;
  return d == "U8" ? 1 : 0;
}

uint64_t Checksum(const void* data, int64_t bytes) {
  constexpr uint64_t kPrime = 0x100000001b3ull;
  uint64_t h = 0xcbf29ce484222325ull;
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

absl::StatusOr<std::vector<uint64_t>> WriteSafetensors(const std::string& path, const std::vector<SafetensorsEntry>& entries) {
  Json header = Json::object();
  std::vector<uint64_t> sums;
  int64_t at = 0;
  for (const SafetensorsEntry& e : entries) {
    const int64_t bytes = Elements(e.shape) * SafetensorsElementSize(e.dtype);
    if (header.contains(e.name)) return Internal("safetensors: two tensors are named ", e.name);
    header[e.name] = {{"dtype", e.dtype}, {"shape", e.shape}, {"data_offsets", {at, at + bytes}}};
    at += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');   // tensors start on 8 bytes
  const std::string tmp = path + ".tmp";
  const int fd = ::open(tmp.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return FileError("create", tmp, errno);
  const uint64_t size = text.size();
  absl::Status s = WriteAll(fd, tmp, &size, 8);
  if (s.ok()) s = WriteAll(fd, tmp, text.data(), static_cast<int64_t>(text.size()));
  for (const SafetensorsEntry& e : entries) {
    if (!s.ok()) break;
    const int64_t bytes = Elements(e.shape) * SafetensorsElementSize(e.dtype);
    sums.push_back(Checksum(e.data, bytes));
    s = WriteAll(fd, tmp, e.data, bytes);
  }
  if (s.ok() && ::fsync(fd) != 0) s = FileError("sync", tmp, errno);
  ::close(fd);
  if (s.ok() && ::rename(tmp.c_str(), path.c_str()) != 0) s = FileError("rename", tmp, errno);
  if (!s.ok()) {
    ::unlink(tmp.c_str());
    return s;
  }
  return sums;
}

SafetensorsReader::~SafetensorsReader() { if (fd_ >= 0) ::close(fd_); }

absl::StatusOr<std::unique_ptr<SafetensorsReader>> SafetensorsReader::Open(const std::string& path) {
  std::unique_ptr<SafetensorsReader> r(new SafetensorsReader());
  r->path_ = path;
  r->fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (r->fd_ < 0) return FileError("open", path, errno);
  struct stat st;
  if (::fstat(r->fd_, &st) != 0) return FileError("stat", path, errno);
  uint64_t size = 0;
  if (st.st_size < 8) return Damaged(path, absl::StrCat("is ", st.st_size, " bytes long, shorter than any safetensors file"));
  MOE_RETURN_IF_ERROR(ReadAll(r->fd_, path, 0, &size, 8));
  if (size > static_cast<uint64_t>(std::min<int64_t>(kLargestHeader, st.st_size - 8)))
    return Damaged(path, absl::StrCat("header of ", size, " bytes does not fit a file of ", st.st_size));
  std::string text(size, '\0');
  MOE_RETURN_IF_ERROR(ReadAll(r->fd_, path, 8, text.data(), static_cast<int64_t>(size)));
  r->data_begin_ = 8 + static_cast<int64_t>(size);
  const int64_t data_bytes = st.st_size - r->data_begin_;
  std::vector<std::string> keys;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth == 1 && event == Json::parse_event_t::key) {
      const std::string key = value.get<std::string>();
      keys.push_back(key);
    }
    return true;
  };
  const Json header = Json::parse(text, watch, false);
  if (header.is_discarded() || !header.is_object()) return Damaged(path, "the header is not a JSON object");
  std::sort(keys.begin(), keys.end());
  const auto same = std::adjacent_find(keys.begin(), keys.end());
  if (same != keys.end()) return Damaged(path, absl::StrCat("tensor ", *same, " stands twice in the header"));
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") continue;
    Info info;
    const auto offsets = value.is_object() ? value.find("data_offsets") : value.end();
    const bool formed = value.is_object() && value.contains("dtype") && value["dtype"].is_string() && value.contains("shape") && value["shape"].is_array() &&
                        offsets != value.end() && offsets->is_array() && offsets->size() == 2 && (*offsets)[0].is_number_integer() && (*offsets)[1].is_number_integer();
    if (!formed) return Damaged(path, absl::StrCat("the entry of tensor ", name, " is malformed"));
    for (const Json& d : value["shape"]) {
      if (!d.is_number_integer()) return Damaged(path, absl::StrCat("the shape of tensor ", name, " is malformed"));
      info.shape.push_back(d.get<int64_t>());
    }
    info.dtype = value["dtype"].get<std::string>();
    info.begin = (*offsets)[0].get<int64_t>();
    const int64_t end = (*offsets)[1].get<int64_t>(), n = Elements(info.shape), width = SafetensorsElementSize(info.dtype);
    info.bytes = end - info.begin;
    if (info.begin < 0 || end < info.begin || end > data_bytes) return Damaged(path, absl::StrCat("tensor ", name, " lies outside the file (truncated?)"));
    if (n < 0 || (width > 0 && info.bytes != n * width)) return Damaged(path, absl::StrCat("tensor ", name, " has ", info.bytes, " bytes, which is not its shape"));
    if (info.bytes > 0) ranges.emplace_back(info.begin, end);
    r->tensors_[name] = std::move(info);
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].first < ranges[i - 1].second) return Damaged(path, "two tensors overlap");
  return r;
}

absl::StatusOr<const SafetensorsReader::Info*> SafetensorsReader::Find(const std::string& name) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) return absl::NotFoundError(absl::StrCat(path_, " holds no tensor ", name));
  return &it->second;
}

absl::Status SafetensorsReader::Read(const std::string& name, void* out, int64_t bytes) const {
  MOE_ASSIGN_OR_RETURN(const Info* info, Find(name));
  if (info->bytes != bytes) return Damaged(path_, absl::StrCat("tensor ", name, " has ", info->bytes, " bytes, expected ", bytes));
  return ReadAll(fd_, path_, data_begin_ + info->begin, out, bytes);
}

absl::StatusOr<std::vector<double>> SafetensorsReader::ReadDoubles(const std::string& name) const {
  MOE_ASSIGN_OR_RETURN(const Info* info, Find(name));
  std::vector<char> raw(info->bytes);
  MOE_RETURN_IF_ERROR(Read(name, raw.data(), info->bytes));
  if (info->dtype == "F64") return Convert<double>(raw, [](double v) { return v; });
  if (info->dtype == "F32") return Convert<float>(raw, [](float v) { return static_cast<double>(v); });
  if (info->dtype == "F16") return Convert<uint16_t>(raw, FromHalf);
  if (info->dtype == "BF16") return Convert<uint16_t>(raw, FromBfloat);
  return InvalidArgument(path_, ": tensor ", name, " is ", info->dtype, ", not a floating-point type");
}

absl::StatusOr<std::vector<int64_t>> SafetensorsReader::ReadInts(const std::string& name) const {
  MOE_ASSIGN_OR_RETURN(const Info* info, Find(name));
  if (info->dtype != "I64") return InvalidArgument(path_, ": tensor ", name, " is ", info->dtype, ", not I64");
  std::vector<int64_t> out(info->bytes / 8);
  MOE_RETURN_IF_ERROR(Read(name, out.data(), info->bytes));
  return out;
}

}  // namespace moe
