#include "core/device/check.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "core/device/op_check.h"
#include "core/device/rows.h"

namespace moe {

absl::Status CheckTensor(const char* op, const char* operand, In view, DType dtype, std::initializer_list<int64_t> want) {
  bool good = view.rank() == static_cast<int>(want.size()) && view.dtype() == dtype;
  for (int i = 0; good && i < view.rank(); ++i) good = want.begin()[i] < 0 || view.dim(i) == want.begin()[i];
  const bool packed = view.rank() == 2 ? view.dim(1) <= 1 || view.stride(1) == 1 : view.contiguous();
  if (good && packed) return absl::OkStatus();
  std::vector<std::string> dims;
  for (int64_t d : want) dims.push_back(d < 0 ? "?" : absl::StrCat(d));
  return InvalidArgument(op, ": ", operand, " is ", view.defined() ? view.DebugString() : "absent", ", wanted ", Name(dtype), "[", absl::StrJoin(dims, ","), "]",
                         packed ? "" : view.rank() == 2 ? " with contiguous rows" : " without gaps");
}

absl::Status CheckFlat(const char* op, const char* operand, In view, DType dtype, int64_t size) {
  if (view.defined() && view.dtype() == dtype && view.size() == size && view.contiguous()) return absl::OkStatus();
  return InvalidArgument(op, ": ", operand, " is ", view.defined() ? view.DebugString() : "absent", ", wanted ", size, " contiguous elements of ", Name(dtype));
}

absl::Status CheckLike(const char* op, const char* operand, In view, In like) {
  if (view.dtype() == like.dtype() && view.shape() == like.shape()) return absl::OkStatus();
  return InvalidArgument(op, ": ", operand, " is ", view.defined() ? view.DebugString() : "absent", ", wanted ", like.DebugString());
}

absl::Status CheckOffsets(const char* op, absl::Span<const int64_t> offsets, int64_t groups, int64_t rows) {
  if (static_cast<int64_t>(offsets.size()) != groups + 1)
    return InvalidArgument(op, ": offsets has ", offsets.size(), " entries, wanted ", groups + 1, " (one more than the ", groups, " groups)");
  if (offsets.front() != 0) return InvalidArgument(op, ": offsets[0] is ", offsets.front(), ", wanted 0");
  for (int64_t g = 0; g < groups; ++g) {
    if (offsets[g + 1] < offsets[g])
      return InvalidArgument(op, ": offsets[", g + 1, "] is ", offsets[g + 1], ", below offsets[", g, "] = ", offsets[g]);
  }
  if (offsets.back() != rows) return InvalidArgument(op, ": offsets[", groups, "] is ", offsets.back(), ", wanted ", rows, " (the rows of the row operands)");
  return absl::OkStatus();
}

absl::Status CheckIndices(const char* op, const char* name, In ids, int64_t low, int64_t high) {
  const int64_t rows = NumRows(ids), n = RowLength(ids);
  for (int64_t r = 0; r < rows; ++r) {
    const int32_t* row = Row<int32_t>(ids, r);
    int32_t least = n ? row[0] : 0, most = least;   // a plain minimum and maximum: the compiler vectorises it
    for (int64_t i = 0; i < n; ++i) {
      least = std::min(least, row[i]);
      most = std::max(most, row[i]);
    }
    if (n == 0 || (least >= low && most < high)) continue;
    const int64_t i = std::find_if(row, row + n, [&](int32_t v) { return v < low || v >= high; }) - row;
    return InvalidArgument(op, ": ", name, " at position ", r * n + i, " is ", row[i], ", outside [", low, ", ", high, ")");
  }
  return absl::OkStatus();
}

absl::Status CheckCopyHost(const char* op, In v, const void* host) {
  return OpCheck(op, "tensor", v, 0, true).Contiguous("tensor", v).That(host != nullptr || v.size() == 0, "the host pointer is null (tensor is ", v.DebugString(), ")").Done();
}

absl::Status CheckFill(Out y) { return OpCheck("Fill", "y", y, 0, true).Done(); }
absl::Status CheckCopy(In x, Out y) {
  OpCheck c("Copy", "x", x, 0, true);
  c.SameShape("y", y);
  if (x.dtype() == y.dtype()) return c.Done();
  const auto real = [](DType d) { return d == DType::kF32 || d == DType::kF64; };
  return c.That(real(x.dtype()) && real(y.dtype()), "cannot convert x ", x.DebugString(), " to y ", y.DebugString(), "; only float32 and float64 are converted").Done();
}
absl::Status CheckScale(Out y) { return OpCheck("Scale", "y", y, 0).Done(); }
absl::Status CheckAxpy(In x, Out y) { return OpCheck("Axpy", "x", x, 0).Same("y", y).Done(); }
absl::Status CheckMultiply(In a, In b, Out y) {
  return OpCheck("Multiply", "a", a, 0).Contiguous("a", a).Same("b", b).Contiguous("b", b).Same("y", y).Contiguous("y", y).Done();
}
absl::Status CheckRandomUniform(Out y) { return OpCheck("RandomUniform", "y", y, 0).Contiguous("y", y).Done(); }
absl::Status CheckRandomNormal(Out y) { return OpCheck("RandomNormal", "y", y, 0).Done(); }

absl::Status CheckReduce(const char* op, In x) { return OpCheck(op, "x", x, 0).Done(); }
absl::Status CheckColumnSum(In x_TE, Out sum_E) { return OpCheck("ColumnSum", "x_TE", x_TE, 2).Like("sum_E", sum_E, {x_TE.dim(1)}).Done(); }

absl::Status CheckGemm(bool trans_a, bool trans_b, In a, In b, Out c) {
  const int64_t M = a.dim(trans_a ? 1 : 0), K = a.dim(trans_a ? 0 : 1), N = b.dim(trans_b ? 0 : 1);
  OpCheck check("Gemm", trans_a ? "a (transposed)" : "a", a, 2);
  if (trans_b) check.Like("b (transposed)", b, {N, K});
  else check.Like("b", b, {K, N});
  return check.Like("c", c, {M, N}).Done();
}

absl::StatusOr<GroupedDims> CheckGroupedGemm(GroupedForm form, In a, In b, absl::Span<const int64_t> offsets, Out c) {
  const char* op = form == GroupedForm::kForward ? "GroupedGemm (forward)" : form == GroupedForm::kInputGrad ? "GroupedGemm (input gradient)" : "GroupedGemm (weight gradient)";
  const TensorView& w = form == GroupedForm::kWeightGrad ? c : b;
  const GroupedDims d{w.dim(0), a.dim(0), w.dim(1), w.dim(2)};
  OpCheck check(op, "w_eOI", w, 3);
  check.Contiguous("w_eOI", w);
  if (form == GroupedForm::kForward) check.Rank("a = x_RI", a, 2).Like("a = x_RI", a, {d.rows, d.in}).Like("c = y_RO", c, {d.rows, d.out});
  else if (form == GroupedForm::kInputGrad) check.Rank("a = dy_RO", a, 2).Like("a = dy_RO", a, {d.rows, d.out}).Like("c = dx_RI", c, {d.rows, d.in});
  else check.Rank("a = dy_RO", a, 2).Like("a = dy_RO", a, {d.rows, d.out}).Like("b = x_RI", b, {d.rows, d.in});
  MOE_RETURN_IF_ERROR(check.Done());
  MOE_RETURN_IF_ERROR(CheckOffsets(op, offsets, d.groups, d.rows));
  return d;
}

absl::Status CheckGroupedBias(const char* op, const char* rows_name, In rows_RO, const char* bias_name, In bias_eO, absl::Span<const int64_t> offsets) {
  MOE_RETURN_IF_ERROR(OpCheck(op, rows_name, rows_RO, 2).Rank(bias_name, bias_eO, 2).Like(bias_name, bias_eO, {bias_eO.dim(0), rows_RO.dim(1)}).Done());
  return CheckOffsets(op, offsets, bias_eO.dim(0), rows_RO.dim(0));
}

absl::Status CheckActivationForward(Activation kind, In h_RH, Out a_RF) {
  const int n = ActivationInputs(kind);
  return OpCheck("ActivationForward", "h_RH", h_RH, 2).That(h_RH.dim(1) % n == 0, "the width of h_RH ", h_RH.DebugString(), " is not a multiple of ", n)
      .Like("a_RF", a_RF, {h_RH.dim(0), h_RH.dim(1) / n}).Done();
}
absl::Status CheckActivationBackward(Activation kind, In h_RH, In da_RF, Out dh_RH) {
  const int n = ActivationInputs(kind);
  return OpCheck("ActivationBackward", "h_RH", h_RH, 2).That(h_RH.dim(1) % n == 0, "the width of h_RH ", h_RH.DebugString(), " is not a multiple of ", n)
      .Like("da_RF", da_RF, {h_RH.dim(0), h_RH.dim(1) / n}).Same("dh_RH", dh_RH).Done();
}

absl::Status CheckRmsNormForward(In x_TD, In w_D, Out y_TD, Out rstd_T) {
  return OpCheck("RmsNormForward", "x_TD", x_TD, 2).Like("w_D", w_D, {x_TD.dim(1)}).Same("y_TD", y_TD).Like("rstd_T", rstd_T, {x_TD.dim(0)}).Done();
}
absl::Status CheckRmsNormBackward(In x_TD, In w_D, In rstd_T, In dy_TD, Out dx_TD, Out dw_D) {
  return OpCheck("RmsNormBackward", "x_TD", x_TD, 2).Like("w_D", w_D, {x_TD.dim(1)}).Like("rstd_T", rstd_T, {x_TD.dim(0)}).Same("dy_TD", dy_TD)
      .Same("dx_TD", dx_TD).Like("dw_D", dw_D, {x_TD.dim(1)}).Done();
}

absl::Status CheckEmbedding(const char* op, In ids_T, const char* rows_name, In rows_TD, const char* table_name, In table_VD) {
  MOE_RETURN_IF_ERROR(OpCheck(op, rows_name, rows_TD, 2).Int32("ids_T", ids_T, {rows_TD.dim(0)}).Rank(table_name, table_VD, 2)
                          .Like(table_name, table_VD, {table_VD.dim(0), rows_TD.dim(1)}).Done());
  return CheckIndices(op, "ids_T", ids_T, 0, table_VD.dim(0));
}
absl::Status CheckRotary(Out x_TQ, int64_t head_dim, In positions_T, In cos_PC, In sin_PC) {
  MOE_RETURN_IF_ERROR(OpCheck("Rotary", "x_TQ", x_TQ, 2).That(head_dim > 0 && head_dim % 2 == 0, "head_dim is ", head_dim, ", wanted an even number above 0")
                          .That(head_dim > 0 && x_TQ.dim(1) % head_dim == 0, "the width of x_TQ ", x_TQ.DebugString(), " is not a multiple of head_dim ", head_dim)
                          .Int32("positions_T", positions_T, {x_TQ.dim(0)}).Rank("cos_PC", cos_PC, 2).Like("cos_PC", cos_PC, {cos_PC.dim(0), head_dim / 2})
                          .Like("sin_PC", sin_PC, {cos_PC.dim(0), head_dim / 2}).Done());
  return CheckIndices("Rotary", "positions_T", positions_T, 0, cos_PC.dim(0));
}

}  // namespace moe
