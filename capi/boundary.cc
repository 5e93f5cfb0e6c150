#include "capi/boundary.h"

#include <cstdlib>
#include <new>
#include <stdexcept>

#include "capi/status.h"

namespace moe::capi {

moe_status* ToStatus(const absl::Status& s) {
  if (s.ok()) return nullptr;
  return new moe_status{static_cast<int32_t>(s.code()), std::string(s.message()), GetFailureInfo(s)};
}

moe_status* FromException() noexcept {
  try {
    try {
      throw;
    } catch (const std::bad_alloc&) {
      return OutOfMemory();
    } catch (const std::length_error&) {   // a container that was asked for more than there can be
      return OutOfMemory();
    } catch (const std::exception& e) {
      return ToStatus(Internal("unexpected exception: ", e.what()));
    } catch (...) {
      return ToStatus(Internal("unexpected exception"));
    }
  } catch (...) {
    return OutOfMemory();
  }
}

char* ToString(const std::string& s) {
  char* out = static_cast<char*>(std::malloc(s.size() + 1));
  if (out == nullptr) throw std::bad_alloc();
  std::memcpy(out, s.c_str(), s.size() + 1);
  return out;
}

absl::Status NullArgument(const char* name) { return InvalidArgument("argument ", name, " is NULL"); }

absl::Status CheckStruct(const char* name, const void* data, size_t known) {
  constexpr size_t head = sizeof(size_t) + sizeof(void*), largest = size_t{1} << 16;
  size_t size;
  const void* extension;
  std::memcpy(&size, data, sizeof(size));
  if (size < head || size > largest || size % 8 != 0)
    return InvalidArgument(name, ".struct_size is ", size, "; set it to sizeof the struct, which this library knows with ", known, " bytes (MOE_INIT does)");
  std::memcpy(&extension, static_cast<const char*>(data) + sizeof(size_t), sizeof(extension));
  if (extension != nullptr) return InvalidArgument(name, ".extension is not NULL; this library (version ", MOE_VERSION_MAJOR, ".", MOE_VERSION_MINOR, ") knows no extension of it");
  for (size_t i = known; i < size; ++i)
    if (static_cast<const char*>(data)[i] != 0)
      return InvalidArgument(name, " has ", size, " bytes, this library (version ", MOE_VERSION_MAJOR, ".", MOE_VERSION_MINOR, ") knows ", known, ", and byte ", i,
                             " is set: the field there needs a newer library");
  return absl::OkStatus();
}

}  // namespace moe::capi
