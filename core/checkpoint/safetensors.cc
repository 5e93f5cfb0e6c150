#include "core/checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "core/checkpoint/safetensors_layout.h"
#include "nlohmann/json.hpp"

namespace moe {
namespace {

using Json = nlohmann::json;

absl::Status Damaged(const std::string& path, const std::string& what) { return absl::DataLossError(absl::StrCat(path, ": ", what)); }

double FromHalf(uint16_t h) {
  const int exponent = (h >> 10) & 31, mantissa = h & 1023;
  const double v = exponent == 0 ? std::ldexp(mantissa, -24) : exponent == 31 ? (mantissa ? NAN : HUGE_VAL) : std::ldexp(1024 + mantissa, exponent - 25);
  return h & 0x8000 ? -v : v;
}
double FromBfloat(uint16_t h) {
  const uint32_t bits = static_cast<uint32_t>(h) << 16;
  float f;
  std::memcpy(&f, &bits, sizeof(f));
  return f;
}

template <typename Stored, typename Out, typename F>
std::vector<Out> Convert(const std::vector<char>& raw, F f) {
  std::vector<Out> out(raw.size() / sizeof(Stored));
  for (size_t i = 0; i < out.size(); ++i) {
    Stored v;
    std::memcpy(&v, raw.data() + i * sizeof(Stored), sizeof(Stored));
    out[i] = static_cast<Out>(f(v));
  }
  return out;
}

// Sees the keys of the outermost object as they are read: in the finished object they are distinct. (The library's own
// callback looks through all siblings after each object: quadratic in the number of tensors.)
class KeyWatcher : public nlohmann::json_sax<Json> {
 public:
  const std::string* duplicate() const { return duplicate_ ? &*duplicate_ : nullptr; }
  bool key(string_t& name) override {
    if (depth_ == 1 && !seen_.insert(name).second) duplicate_ = name;
    return true;
  }
  bool start_object(size_t) override { return Enter(); }
  bool start_array(size_t) override { return Enter(); }
  bool end_object() override { return Leave(); }
  bool end_array() override { return Leave(); }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool parse_error(size_t, const std::string&, const Json::exception&) override { return false; }

 private:
  bool Enter() { return ++depth_ > 0; }
  bool Leave() { return --depth_ >= 0; }
  int64_t depth_ = 0;
  std::unordered_set<std::string> seen_;
  std::optional<std::string> duplicate_;
};

absl::StatusOr<Json> ParseHeader(const std::string& path, const std::string& text) {
  KeyWatcher keys;
  if (!Json::sax_parse(text, &keys)) return Damaged(path, "the header is not JSON");
  if (keys.duplicate()) return Damaged(path, absl::StrCat("tensor ", *keys.duplicate(), " stands twice in the header"));
  Json header = Json::parse(text, nullptr, false);
  if (!header.is_object()) return Damaged(path, "the header is not a JSON object");
  return header;
}

bool IsSize(const Json& j) { return j.is_number_unsigned() && j.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX); }

absl::StatusOr<SafetensorsReader::Info> ParseEntry(const std::string& path, const std::string& name, const Json& value, int64_t data_bytes) {
  const auto damaged = [&](const std::string& what) { return Damaged(path, absl::StrCat("tensor ", name, " ", what)); };
  const auto member = [&](const char* key) {
    const auto it = value.is_object() ? value.find(key) : value.end();
    return value.is_object() && it != value.end() ? &*it : nullptr;
  };
  const Json *dtype = member("dtype"), *shape = member("shape"), *offsets = member("data_offsets");
  if (!dtype || !dtype->is_string()) return damaged("has no dtype");
  if (!shape || !shape->is_array() || !std::all_of(shape->begin(), shape->end(), IsSize)) return damaged("has a malformed shape");
  if (!offsets || !offsets->is_array() || offsets->size() != 2 || !std::all_of(offsets->begin(), offsets->end(), IsSize)) return damaged("has malformed offsets");
  SafetensorsReader::Info info;
  info.dtype = dtype->get<std::string>();
  for (const Json& d : *shape) info.shape.push_back(d.get<int64_t>());
  info.begin = (*offsets)[0].get<int64_t>();
  const int64_t end = (*offsets)[1].get<int64_t>(), width = SafetensorsElementSize(info.dtype);
  if (end < info.begin || end > data_bytes) return damaged("lies outside the file (truncated?)");
  info.bytes = end - info.begin;
  // Of a dtype that is not known here nothing is known about the size.
  if (width > 0 && info.bytes != SafetensorsBytes(info.shape, width)) return damaged(absl::StrCat("has ", info.bytes, " bytes, which is not its shape"));
  return info;
}

}  // namespace

int64_t SafetensorsElementSize(const std::string& d) {
  static constexpr std::pair<const char*, int> kSizes[] = {{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I64", 8}, {"I32", 4},
                                                           {"I16", 2}, {"I8", 1},  {"U64", 8}, {"U32", 4},  {"U16", 2},     {"U8", 1},      {"BOOL", 1}};
  for (const auto& [name, size] : kSizes)
    if (d == name) return size;
  return 0;
}

SafetensorsReader::~SafetensorsReader() { if (fd_ >= 0) ::close(fd_); }

absl::StatusOr<std::unique_ptr<SafetensorsReader>> SafetensorsReader::Open(const std::string& path) {
  std::unique_ptr<SafetensorsReader> r(new SafetensorsReader());
  r->path_ = path;
  r->fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);   // a pipe would wait for its writer
  if (r->fd_ < 0) return FileError("open", path, errno);
  struct stat st;
  if (::fstat(r->fd_, &st) != 0) return FileError("stat", path, errno);
  if (!S_ISREG(st.st_mode)) return InvalidArgument(path, " is not a file");
  uint64_t size = 0;
  if (st.st_size < 8) return Damaged(path, absl::StrCat("is ", st.st_size, " bytes long, shorter than any safetensors file"));
  MOE_RETURN_IF_ERROR(ReadAllAt(r->fd_, path, 0, &size, 8));
  if (size > static_cast<uint64_t>(std::min<int64_t>(kLargestSafetensorsHeader, st.st_size - 8)))
    return Damaged(path, absl::StrCat("header of ", size, " bytes does not fit a file of ", st.st_size));
  std::string text(size, '\0');
  MOE_RETURN_IF_ERROR(ReadAllAt(r->fd_, path, 8, text.data(), static_cast<int64_t>(size)));
  r->data_begin_ = 8 + static_cast<int64_t>(size);
  const int64_t data_bytes = st.st_size - r->data_begin_;
  MOE_ASSIGN_OR_RETURN(const Json header, ParseHeader(path, text));
  struct Range { int64_t begin, end; const std::string* name; };
  std::vector<Range> ranges;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") continue;
    MOE_ASSIGN_OR_RETURN(Info info, ParseEntry(path, name, value, data_bytes));
    const auto at = r->tensors_.emplace(name, std::move(info)).first;
    if (at->second.bytes > 0) ranges.push_back({at->second.begin, at->second.begin + at->second.bytes, &at->first});
  }
  // The format allows neither overlaps nor bytes that belong to no tensor.
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  int64_t at = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].begin < at) return Damaged(path, absl::StrCat("tensors ", *ranges[i - 1].name, " and ", *ranges[i].name, " overlap"));
    if (ranges[i].begin > at) return Damaged(path, absl::StrCat(ranges[i].begin - at, " bytes before tensor ", *ranges[i].name, " belong to no tensor"));
    at = ranges[i].end;
  }
  if (at != data_bytes) return Damaged(path, absl::StrCat(data_bytes - at, " bytes at its end belong to no tensor"));
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
  return ReadPart(name, 0, out, bytes);
}

absl::Status SafetensorsReader::ReadPart(const std::string& name, int64_t offset, void* out, int64_t bytes) const {
  MOE_ASSIGN_OR_RETURN(const Info* info, Find(name));
  if (offset < 0 || bytes < 0 || offset > info->bytes || bytes > info->bytes - offset)
    return absl::OutOfRangeError(absl::StrCat(path_, ": ", bytes, " bytes from ", offset, " are not all in tensor ", name, ", which has ", info->bytes));
  return Annotate(ReadAllAt(fd_, path_, data_begin_ + info->begin + offset, out, bytes), absl::StrCat("tensor ", name));
}

template <typename T>
absl::StatusOr<std::vector<T>> SafetensorsReader::ReadAs(const std::string& name) const {
  MOE_ASSIGN_OR_RETURN(const Info* info, Find(name));
  std::vector<char> raw(info->bytes);
  MOE_RETURN_IF_ERROR(Read(name, raw.data(), info->bytes));
  const auto same = [](auto v) { return v; };
  if (info->dtype == "F64") return Convert<double, T>(raw, same);
  if (info->dtype == "F32") return Convert<float, T>(raw, same);
  if (info->dtype == "F16") return Convert<uint16_t, T>(raw, FromHalf);
  if (info->dtype == "BF16") return Convert<uint16_t, T>(raw, FromBfloat);
  return InvalidArgument(path_, ": tensor ", name, " is ", info->dtype, ", not a floating-point type that can be read (F64, F32, F16, BF16)");
}

absl::StatusOr<std::vector<double>> SafetensorsReader::ReadDoubles(const std::string& name) const { return ReadAs<double>(name); }
absl::StatusOr<std::vector<float>> SafetensorsReader::ReadFloats(const std::string& name) const { return ReadAs<float>(name); }

absl::StatusOr<std::vector<int64_t>> SafetensorsReader::ReadInts(const std::string& name) const {
  MOE_ASSIGN_OR_RETURN(const Info* info, Find(name));
  std::vector<char> raw(info->bytes);
  MOE_RETURN_IF_ERROR(Read(name, raw.data(), info->bytes));
  const auto same = [](auto v) { return v; };
  if (info->dtype == "I64") return Convert<int64_t, int64_t>(raw, same);
  if (info->dtype == "I32") return Convert<int32_t, int64_t>(raw, same);
  if (info->dtype == "U8") return Convert<uint8_t, int64_t>(raw, same);
  return InvalidArgument(path_, ": tensor ", name, " is ", info->dtype, ", not an integer type that can be read (I64, I32, U8)");
}

}  // namespace moe
