// A plain view of memory that somebody else owns: pointer, dtype, shape, strides (in elements).
// A default-constructed view is "absent" (defined() is false): optional operands are passed that way.
// Rows may be padded (stride(0) > shape(1)); the last dimension is contiguous in every operation of Device.
#ifndef MOE_CORE_BASE_TENSOR_H_
#define MOE_CORE_BASE_TENSOR_H_

#include <array>
#include <cassert>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "core/base/dtype.h"

namespace moe {

constexpr int kMaxRank = 4;

class TensorView {
 public:
  TensorView() = default;
  // A contiguous view of row-major memory.
  TensorView(void* data, DType dtype, std::initializer_list<int64_t> shape)
      : TensorView(data, dtype, shape.begin(), static_cast<int>(shape.size())) {}
  TensorView(void* data, DType dtype, const std::vector<int64_t>& shape)
      : TensorView(data, dtype, shape.data(), static_cast<int>(shape.size())) {}

  bool defined() const { return rank_ > 0; }
  void* data() const { return data_; }
  template <typename T> T* as() const { assert(DTypeOf<T>::value == dtype_ || rank_ == 0); return static_cast<T*>(data_); }
  DType dtype() const { return dtype_; }
  int rank() const { return rank_; }
  int64_t dim(int i) const { return shape_[i]; }
  int64_t stride(int i) const { return stride_[i]; }
  int64_t size() const { int64_t n = rank_ ? 1 : 0; for (int i = 0; i < rank_; ++i) n *= shape_[i]; return n; }
  int64_t bytes() const { return size() * SizeOf(dtype_); }
  bool contiguous() const {
    int64_t s = 1;
    for (int i = rank_ - 1; i >= 0; --i) { if (shape_[i] != 1 && stride_[i] != s) return false; s *= shape_[i]; }
    return true;
  }
  std::vector<int64_t> shape() const { return std::vector<int64_t>(shape_.begin(), shape_.begin() + rank_); }

  // Elements [begin, begin + count) of the first dimension.
  TensorView Rows(int64_t begin, int64_t count) const {
    TensorView v = *this;
    v.data_ = static_cast<char*>(data_) + begin * stride_[0] * SizeOf(dtype_);
    v.shape_[0] = count;
    return v;
  }
  // Columns [begin, begin + count) of the last dimension; keeps the strides.
  TensorView Columns(int64_t begin, int64_t count) const {
    TensorView v = *this;
    v.data_ = static_cast<char*>(data_) + begin * stride_[rank_ - 1] * SizeOf(dtype_);
    v.shape_[rank_ - 1] = count;
    return v;
  }
  // The i-th slice along the first dimension (rank - 1).
  TensorView At(int64_t i) const {
    TensorView v = *this;
    v.data_ = static_cast<char*>(data_) + i * stride_[0] * SizeOf(dtype_);
    v.rank_ = rank_ - 1;
    for (int d = 0; d < v.rank_; ++d) { v.shape_[d] = shape_[d + 1]; v.stride_[d] = stride_[d + 1]; }
    return v;
  }
  // Another shape of the same number of elements; the view must be contiguous.
  TensorView Reshape(std::initializer_list<int64_t> shape) const { assert(contiguous()); return TensorView(data_, dtype_, shape); }
  TensorView Flat() const { return Reshape({size()}); }

  std::string DebugString() const;   // "float32[3,4]"

 private:
  TensorView(void* data, DType dtype, const int64_t* shape, int rank) : data_(data), dtype_(dtype), rank_(rank) {
    assert(rank <= kMaxRank);
    int64_t s = 1;
    for (int i = rank - 1; i >= 0; --i) { shape_[i] = shape[i]; stride_[i] = s; s *= shape[i]; }
  }
  void* data_ = nullptr;
  DType dtype_ = DType::kF32;
  int rank_ = 0;
  std::array<int64_t, kMaxRank> shape_{};
  std::array<int64_t, kMaxRank> stride_{};
};

}  // namespace moe
#endif  // MOE_CORE_BASE_TENSOR_H_
