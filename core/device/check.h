// What every operation of Device demands of its operands, one function per operation, so that all implementations
// refuse the same calls with the same words: operation, operand, its shape, the wanted shape, the ruling operand.
#ifndef MOE_CORE_DEVICE_CHECK_H_
#define MOE_CORE_DEVICE_CHECK_H_

#include <initializer_list>

#include "core/device/device.h"

namespace moe {

// ---- single demands, for what is no operation of Device
// -1 in `want` accepts any size. The last dimension has unit stride; with rank 3 or more the view is contiguous.
absl::Status CheckTensor(const char* op, const char* operand, In view, DType dtype, std::initializer_list<int64_t> want);
// Any shape, contiguous.
absl::Status CheckFlat(const char* op, const char* operand, In view, DType dtype, int64_t size);
// Same dtype and shape as `like`.
absl::Status CheckLike(const char* op, const char* operand, In view, In like);
// Offsets of groups: groups + 1 entries, from 0, never falling, to `rows`.
absl::Status CheckOffsets(const char* op, absl::Span<const int64_t> offsets, int64_t groups, int64_t rows);
// Every value of an int32 tensor lies in [low, high); the error names the position of the first that does not.
absl::Status CheckIndices(const char* op, const char* name, In ids, int64_t low, int64_t high);

// ---- one per operation
absl::Status CheckCopyHost(const char* op, In v, const void* host);

absl::Status CheckFill(Out y);
absl::Status CheckCopy(In x, Out y);
absl::Status CheckScale(Out y);
absl::Status CheckAxpy(In x, Out y);
absl::Status CheckMultiply(In a, In b, Out y);
absl::Status CheckRandomUniform(Out y);
absl::Status CheckRandomNormal(Out y);

absl::Status CheckReduce(const char* op, In x);
absl::Status CheckColumnSum(In x_TE, Out sum_E);

absl::Status CheckGemm(bool trans_a, bool trans_b, In a, In b, Out c);
struct GroupedDims { int64_t groups = 0, rows = 0, out = 0, in = 0; };
absl::StatusOr<GroupedDims> CheckGroupedGemm(GroupedForm form, In a, In b, absl::Span<const int64_t> offsets, Out c);
// Of GroupedBias (rows y_RO, b_eO) and GroupedBiasGrad (rows dy_RO, db_eO).
absl::Status CheckGroupedBias(const char* op, const char* rows_name, In rows_RO, const char* bias_name, In bias_eO, absl::Span<const int64_t> offsets);

absl::Status CheckActivationForward(Activation kind, In h_RH, Out a_RF);
absl::Status CheckActivationBackward(Activation kind, In h_RH, In da_RF, Out dh_RH);

absl::Status CheckRmsNormForward(In x_TD, In w_D, Out y_TD, Out rstd_T);
absl::Status CheckRmsNormBackward(In x_TD, In w_D, In rstd_T, In dy_TD, Out dx_TD, Out dw_D);

// These look at the ids too.
absl::Status CheckEmbedding(const char* op, In ids_T, const char* rows_name, In rows_TD, const char* table_name, In table_VD);
absl::Status CheckRotary(Out x_TQ, int64_t head_dim, In positions_T, In cos_PC, In sin_PC);

absl::Status CheckAttention(const AttentionShape& s, In q, In k, In v, In o, In lse_BHS);
absl::Status CheckAttentionBackward(const AttentionShape& s, In q, In k, In v, In o, In lse_BHS, In do_, Out dq, Out dk, Out dv);

absl::Status CheckSoftmax(In l_TE, Out p_TE, Out lse_T);
absl::Status CheckSoftmaxBackward(In p_TE, In dp_TE, Out dl_TE);
absl::Status CheckTopK(In s_TE, Out ids_TK);
// The error of a row of TopK that holds NaN or an infinity.
absl::Status TopKNotFinite(int64_t row, int64_t column, double value);
absl::Status CheckGatherColumns(In p_TE, In ids_TK, Out w_TK);     // looks at the ids too
absl::Status CheckScatterColumns(In dw_TK, In ids_TK, Out dp_TE);  // looks at the ids too
absl::Status CheckNormalizeRows(In raw_TK, Out w_TK);
absl::Status CheckNormalizeRowsBackward(In raw_TK, In dw_TK, Out draw_TK);
absl::Status CheckAddRow(In c_E, Out y_TE);
absl::Status CheckAddScaledRows(In s_T, In x_TE, Out y_TE);
absl::Status CheckMaskRows(In valid_T, Out y_TE);

// These look at the indices too.
absl::Status CheckGatherRows(In x_TD, In index_N, Out y_ND);
absl::Status CheckCombine(In rows_ND, In pos_TK, In w_TK, Out y_TD);
absl::Status CheckCombineBackward(In rows_ND, In pos_TK, In w_TK, In dy_TD, Out drows_ND, Out dw_TK);

absl::Status CheckCrossEntropy(Out logits_TV, In labels_T, Out nll_T);  // looks at the labels too

absl::Status CheckAdamW(const AdamWStep& s, In g, Out p, Out m, Out v);
absl::Status CheckSgd(In g, Out p, Out mom);

}  // namespace moe
#endif  // MOE_CORE_DEVICE_CHECK_H_
