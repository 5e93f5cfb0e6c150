// Builds the INVALID_ARGUMENT of an operation from what it wants of its operands: the first operand ("lead") rules
// dtype and sizes, the others are checked against it. Nothing is allocated unless something is wrong.
#ifndef MOE_CORE_DEVICE_OP_CHECK_H_
#define MOE_CORE_DEVICE_OP_CHECK_H_

#include <initializer_list>

#include "core/base/status.h"
#include "core/base/tensor.h"

namespace moe {

class OpCheck {
 public:
  // `rank` 0: any. The lead is float32 or float64 unless `any_dtype`.
  OpCheck(const char* op, const char* name, const TensorView& lead, int rank, bool any_dtype = false);

  OpCheck& Like(const char* name, const TensorView& v, std::initializer_list<int64_t> shape) { return Want(name, v, lead_.dtype(), shape.begin(), shape.size()); }
  OpCheck& Int32(const char* name, const TensorView& v, std::initializer_list<int64_t> shape) { return Want(name, v, DType::kI32, shape.begin(), shape.size()); }
  OpCheck& UInt8(const char* name, const TensorView& v, std::initializer_list<int64_t> shape) { return Want(name, v, DType::kU8, shape.begin(), shape.size()); }
  // Dtype and shape of the lead.
  OpCheck& Same(const char* name, const TensorView& v);
  // Shape of the lead, whatever the dtype.
  OpCheck& SameShape(const char* name, const TensorView& v);
  // Rank and (unless `any_dtype`) the lead's dtype; the sizes are the caller's to check.
  OpCheck& Rank(const char* name, const TensorView& v, int rank, bool any_dtype = false);
  OpCheck& Contiguous(const char* name, const TensorView& v);
  // `values` are joined to a text; only built when `ok` is false.
  template <typename... A>
  OpCheck& That(bool ok, const A&... values) {
    if (status_.ok() && !ok) status_ = InvalidArgument(op_, ": ", values...);
    return *this;
  }
  absl::Status Done() { return std::move(status_); }

 private:
  OpCheck& Want(const char* name, const TensorView& v, DType dtype, const int64_t* shape, size_t rank);
  void Refuse(const char* name, const TensorView& v, const std::string& wanted);
  void LastDimension(const char* name, const TensorView& v);

  const char* op_;
  const char* lead_name_;
  const TensorView& lead_;
  absl::Status status_;
};

}  // namespace moe
#endif  // MOE_CORE_DEVICE_OP_CHECK_H_
