// The border of the library: absl::Status to moe_status, exceptions to errors, strings and structs across.
#ifndef MOE_CAPI_BOUNDARY_H_
#define MOE_CAPI_BOUNDARY_H_

#include <cstddef>
#include <cstring>
#include <string>

#include "capi/moe.h"
#include "core/base/status.h"

namespace moe::capi {

// NULL for OK.
moe_status* ToStatus(const absl::Status& s);
// Of the exception that is being handled.
moe_status* FromException() noexcept;
// For the caller, who frees it with moe_string_destroy. Throws std::bad_alloc.
char* ToString(const std::string& s);

absl::Status NullArgument(const char* name);

// Every function that returns moe_status* does its work in here: nothing is thrown across the border.
template <typename F>
moe_status* Catch(F f) noexcept {
  try {
    return ToStatus(f());
  } catch (...) {
    return FromException();
  }
}

// What a struct that crosses the border must satisfy: struct_size is set, the bytes behind what this library knows are zero, no
// extension.
absl::Status CheckStruct(const char* name, const void* data, size_t known);

// As much of a caller's struct as both sides know; the rest is zero.
template <typename T>
absl::StatusOr<T> ReadStruct(const char* name, const T* given) {
  MOE_RETURN_IF_ERROR(given == nullptr ? NullArgument(name) : CheckStruct(name, given, sizeof(T)));
  T out{};
  std::memcpy(&out, given, given->struct_size < sizeof(T) ? given->struct_size : sizeof(T));
  return out;
}

// Writes as much of `value` as the caller's struct, which CheckStruct has passed, holds; its head stays the caller's.
template <typename T>
void WriteStruct(const T& value, T* out) {
  constexpr size_t head = offsetof(T, extension) + sizeof(void*);
  const size_t size = out->struct_size < sizeof(T) ? out->struct_size : sizeof(T);
  std::memcpy(reinterpret_cast<char*>(out) + head, reinterpret_cast<const char*>(&value) + head, size - head);
}

}  // namespace moe::capi
#endif  // MOE_CAPI_BOUNDARY_H_
