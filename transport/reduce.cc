#include "transport/reduce.h"

#include <type_traits>

namespace moe {
namespace {

template <typename T>
T Add(T a, T b) {
  // Integer sums wrap instead of being undefined.
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  } else {
    return a + b;
  }
}

template <typename T>
void Reduce(T* inout, const T* in, int64_t n, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      for (int64_t i = 0; i < n; ++i) inout[i] = Add(inout[i], in[i]);
      break;
    case ReduceOp::kMax:
      for (int64_t i = 0; i < n; ++i) inout[i] = (in[i] > inout[i] || in[i] != in[i]) ? in[i] : inout[i];
      break;
    case ReduceOp::kMin:
      for (int64_t i = 0; i < n; ++i) inout[i] = (in[i] < inout[i] || in[i] != in[i]) ? in[i] : inout[i];
      break;
  }
}

template <typename T>
void Reduce(void* inout, const void* in, int64_t n, ReduceOp op) { Reduce(static_cast<T*>(inout), static_cast<const T*>(in), n, op); }

}  // namespace

void ReduceInto(void* inout, const void* in, int64_t count, DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::kF32: Reduce<float>(inout, in, count, op); break;
    case DType::kF64: Reduce<double>(inout, in, count, op); break;
    case DType::kI32: Reduce<int32_t>(inout, in, count, op); break;
    case DType::kI64: Reduce<int64_t>(inout, in, count, op); break;
    case DType::kU8: Reduce<uint8_t>(inout, in, count, op); break;
  }
}

}  // namespace moe
