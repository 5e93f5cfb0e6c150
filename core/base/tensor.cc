#include "core/base/tensor.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace moe {

std::string TensorView::DebugString() const {
  return absl::StrCat(Name(dtype_), "[", absl::StrJoin(shape(), ","), "]");
}

}  // namespace moe
