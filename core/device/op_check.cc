#include "core/device/op_check.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "absl/types/span.h"

namespace moe {
namespace {

std::string Text(const TensorView& v) { return v.defined() ? v.DebugString() : "absent"; }
bool IsFloat(DType d) { return d == DType::kF32 || d == DType::kF64; }

}  // namespace

OpCheck::OpCheck(const char* op, const char* name, const TensorView& lead, int rank, bool any_dtype) : op_(op), lead_name_(name), lead_(lead) {
  if (!lead.defined()) status_ = InvalidArgument(op, ": ", name, " is absent");
  else if (!any_dtype && !IsFloat(lead.dtype())) status_ = InvalidArgument(op, ": ", name, " is ", Text(lead), ", wanted float32 or float64");
  else if (rank != 0 && lead.rank() != rank) status_ = InvalidArgument(op, ": ", name, " is ", Text(lead), ", wanted ", rank, " dimension", rank == 1 ? "" : "s");
  LastDimension(name, lead);
}

void OpCheck::LastDimension(const char* name, const TensorView& v) {
  if (!status_.ok()) return;
  const int last = v.rank() - 1;
  if (v.dim(last) > 1 && v.stride(last) != 1)
    status_ = InvalidArgument(op_, ": the last dimension of ", name, " ", Text(v), " has stride ", v.stride(last), ", wanted 1 (contiguous)");
}

void OpCheck::Refuse(const char* name, const TensorView& v, const std::string& wanted) {
  status_ = InvalidArgument(op_, ": ", name, " is ", Text(v), ", wanted ", wanted, " (", lead_name_, " is ", Text(lead_), ")");
}

OpCheck& OpCheck::Want(const char* name, const TensorView& v, DType dtype, const int64_t* shape, size_t rank) {
  if (!status_.ok()) return *this;
  bool ok = v.defined() && v.dtype() == dtype && static_cast<size_t>(v.rank()) == rank;
  for (size_t i = 0; ok && i < rank; ++i) ok = v.dim(static_cast<int>(i)) == shape[i];
  if (!ok) Refuse(name, v, absl::StrCat(Name(dtype), "[", absl::StrJoin(absl::MakeSpan(shape, rank), ","), "]"));
  LastDimension(name, v);
  return *this;
}

OpCheck& OpCheck::Same(const char* name, const TensorView& v) {
  if (status_.ok() && v.defined() && v.dtype() != lead_.dtype()) Refuse(name, v, Text(lead_));
  return SameShape(name, v);
}

OpCheck& OpCheck::SameShape(const char* name, const TensorView& v) {
  if (!status_.ok()) return *this;
  bool ok = v.rank() == lead_.rank();
  for (int i = 0; ok && i < v.rank(); ++i) ok = v.dim(i) == lead_.dim(i);
  if (!ok) Refuse(name, v, absl::StrCat("[", absl::StrJoin(lead_.shape(), ","), "]"));
  LastDimension(name, v);
  return *this;
}

OpCheck& OpCheck::Rank(const char* name, const TensorView& v, int rank, bool any_dtype) {
  if (!status_.ok()) return *this;
  if (!v.defined() || v.rank() != rank || (!any_dtype && v.dtype() != lead_.dtype())) {
    Refuse(name, v, absl::StrCat(any_dtype ? "" : absl::StrCat(Name(lead_.dtype()), " of "), rank, " dimension", rank == 1 ? "" : "s"));
  }
  LastDimension(name, v);
  return *this;
}

OpCheck& OpCheck::Contiguous(const char* name, const TensorView& v) {
  if (status_.ok() && !v.contiguous()) status_ = InvalidArgument(op_, ": ", name, " ", Text(v), " has padded rows, wanted contiguous memory");
  return *this;
}

}  // namespace moe
