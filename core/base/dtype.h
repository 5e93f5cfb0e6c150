// Element types of tensors.
#ifndef MOE_CORE_BASE_DTYPE_H_
#define MOE_CORE_BASE_DTYPE_H_

#include <cstdint>

namespace moe {

enum class DType : int32_t { kF32 = 1, kF64 = 2, kI32 = 3, kI64 = 4, kU8 = 5 };

constexpr int64_t SizeOf(DType d) {
  return d == DType::kF32 || d == DType::kI32 ? 4 : d == DType::kU8 ? 1 : 8;
}
constexpr const char* Name(DType d) {
  switch (d) {
    case DType::kF32: return "float32";
    case DType::kF64: return "float64";
    case DType::kI32: return "int32";
    case DType::kI64: return "int64";
    case DType::kU8: return "uint8";
  }
  return "?";
}
template <typename T> struct DTypeOf;
template <> struct DTypeOf<float> { static constexpr DType value = DType::kF32; };
template <> struct DTypeOf<double> { static constexpr DType value = DType::kF64; };
template <> struct DTypeOf<int32_t> { static constexpr DType value = DType::kI32; };
template <> struct DTypeOf<int64_t> { static constexpr DType value = DType::kI64; };
template <> struct DTypeOf<uint8_t> { static constexpr DType value = DType::kU8; };

}  // namespace moe
#endif  // MOE_CORE_BASE_DTYPE_H_
