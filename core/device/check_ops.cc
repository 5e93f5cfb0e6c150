// The second half of check.h: attention, gates, permute, loss, optimizer.
#include "core/device/check.h"
#include "core/device/op_check.h"

namespace moe {
namespace {

absl::Status CheckAttentionShape(const char* op, const AttentionShape& s) {
  if (s.batch < 0 || s.seq < 0 || s.heads <= 0 || s.kv_heads <= 0 || s.head_dim <= 0)
    return InvalidArgument(op, ": batch ", s.batch, ", seq ", s.seq, ", heads ", s.heads, ", kv_heads ", s.kv_heads, ", head_dim ", s.head_dim,
                           "; wanted batch and seq >= 0, the others > 0");
  if (s.heads % s.kv_heads != 0) return InvalidArgument(op, ": heads ", s.heads, " is not a multiple of kv_heads ", s.kv_heads);
  if (s.query_seq < 0 || s.query_begin < 0)
    return InvalidArgument(op, ": query_seq ", s.query_seq, ", query_begin ", s.query_begin, "; wanted both >= 0");
  if (s.query_seq == 0 && s.query_begin != 0)
    return InvalidArgument(op, ": query_begin is ", s.query_begin, " but query_seq 0 asks for all ", s.seq, " queries; set query_seq, or query_begin to 0");
  if (s.query_begin > s.seq - s.queries())
    return InvalidArgument(op, ": query_begin ", s.query_begin, " + query_seq ", s.query_seq, " goes past seq ", s.seq, "; a query stands at the position of a key");
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckAttention(const AttentionShape& s, In q, In k, In v, In o, In lse_BHS) {
  const char* op = "Attention";
  MOE_RETURN_IF_ERROR(CheckAttentionShape(op, s));
  const int64_t N = s.batch * s.queries(), T = s.batch * s.seq, qd = s.heads * s.head_dim, kd = s.kv_heads * s.head_dim;
  return OpCheck(op, "q", q, 2).Like("q", q, {N, qd}).Like("k", k, {T, kd}).Like("v", v, {T, kd}).Like("o", o, {N, qd})
      .Like("lse_BHS", lse_BHS, {s.batch, s.heads, s.queries()}).Contiguous("lse_BHS", lse_BHS).Done();
}

absl::Status CheckAttentionBackward(const AttentionShape& s, In q, In k, In v, In o, In lse_BHS, In do_, Out dq, Out dk, Out dv) {
  const char* op = "AttentionBackward";
  MOE_RETURN_IF_ERROR(CheckAttentionShape(op, s));
  const int64_t N = s.batch * s.queries(), T = s.batch * s.seq, qd = s.heads * s.head_dim, kd = s.kv_heads * s.head_dim;
  return OpCheck(op, "q", q, 2).Like("q", q, {N, qd}).Like("k", k, {T, kd}).Like("v", v, {T, kd}).Like("o", o, {N, qd})
      .Like("lse_BHS", lse_BHS, {s.batch, s.heads, s.queries()}).Contiguous("lse_BHS", lse_BHS)
      .Like("do", do_, {N, qd}).Like("dq", dq, {N, qd}).Like("dk", dk, {T, kd}).Like("dv", dv, {T, kd}).Done();
}

absl::Status CheckSoftmax(In l_TE, Out p_TE, Out lse_T) {
  OpCheck c("Softmax", "l_TE", l_TE, 2);
  c.Same("p_TE", p_TE);
  if (lse_T.defined()) c.Like("lse_T", lse_T, {l_TE.dim(0)});
  return c.Done();
}
absl::Status CheckSoftmaxBackward(In p_TE, In dp_TE, Out dl_TE) {
  return OpCheck("SoftmaxBackward", "p_TE", p_TE, 2).Same("dp_TE", dp_TE).Same("dl_TE", dl_TE).Done();
}
absl::Status CheckTopK(In s_TE, Out ids_TK) {
  return OpCheck("TopK", "s_TE", s_TE, 2).Rank("ids_TK", ids_TK, 2, true).Int32("ids_TK", ids_TK, {s_TE.dim(0), ids_TK.dim(1)})
      .That(ids_TK.dim(1) <= s_TE.dim(1), "ids_TK ", ids_TK.DebugString(), " asks for more columns than s_TE ", s_TE.DebugString(), " has").Done();
}
absl::Status TopKNotFinite(int64_t row, int64_t column, double value) {
  return InvalidArgument("TopK: row ", row, " of s_TE holds ", value, " in column ", column, "; scores must be finite");
}
absl::Status CheckGatherColumns(In p_TE, In ids_TK, Out w_TK) {
  MOE_RETURN_IF_ERROR(OpCheck("GatherColumns", "p_TE", p_TE, 2).Rank("ids_TK", ids_TK, 2, true).Int32("ids_TK", ids_TK, {p_TE.dim(0), ids_TK.dim(1)})
                          .Like("w_TK", w_TK, {p_TE.dim(0), ids_TK.dim(1)}).Done());
  return CheckIndices("GatherColumns", "ids_TK", ids_TK, -1, p_TE.dim(1));
}
absl::Status CheckScatterColumns(In dw_TK, In ids_TK, Out dp_TE) {
  MOE_RETURN_IF_ERROR(OpCheck("ScatterColumns", "dw_TK", dw_TK, 2).Int32("ids_TK", ids_TK, {dw_TK.dim(0), dw_TK.dim(1)}).Rank("dp_TE", dp_TE, 2)
                          .Like("dp_TE", dp_TE, {dw_TK.dim(0), dp_TE.dim(1)}).Done());
  return CheckIndices("ScatterColumns", "ids_TK", ids_TK, -1, dp_TE.dim(1));
}
absl::Status CheckNormalizeRows(In raw_TK, Out w_TK) { return OpCheck("NormalizeRows", "raw_TK", raw_TK, 2).Same("w_TK", w_TK).Done(); }
absl::Status CheckNormalizeRowsBackward(In raw_TK, In dw_TK, Out draw_TK) {
  return OpCheck("NormalizeRowsBackward", "raw_TK", raw_TK, 2).Same("dw_TK", dw_TK).Same("draw_TK", draw_TK).Done();
}
absl::Status CheckAddRow(In c_E, Out y_TE) { return OpCheck("AddRow", "y_TE", y_TE, 2).Like("c_E", c_E, {y_TE.dim(1)}).Done(); }
absl::Status CheckAddScaledRows(In s_T, In x_TE, Out y_TE) {
  return OpCheck("AddScaledRows", "x_TE", x_TE, 2).Like("s_T", s_T, {x_TE.dim(0)}).Same("y_TE", y_TE).Done();
}
absl::Status CheckMaskRows(In valid_T, Out y_TE) { return OpCheck("MaskRows", "y_TE", y_TE, 2).UInt8("valid_T", valid_T, {y_TE.dim(0)}).Done(); }

absl::Status CheckGatherRows(In x_TD, In index_N, Out y_ND) {
  MOE_RETURN_IF_ERROR(OpCheck("GatherRows", "x_TD", x_TD, 2).Rank("index_N", index_N, 1, true).Int32("index_N", index_N, {index_N.dim(0)})
                          .Like("y_ND", y_ND, {index_N.dim(0), x_TD.dim(1)}).Done());
  return CheckIndices("GatherRows", "index_N", index_N, -1, x_TD.dim(0));
}
absl::Status CheckCombine(In rows_ND, In pos_TK, In w_TK, Out y_TD) {
  OpCheck c("Combine", "rows_ND", rows_ND, 2);
  c.Rank("pos_TK", pos_TK, 2, true).Int32("pos_TK", pos_TK, {pos_TK.dim(0), pos_TK.dim(1)}).Like("y_TD", y_TD, {pos_TK.dim(0), rows_ND.dim(1)});
  if (w_TK.defined()) c.Like("w_TK", w_TK, {pos_TK.dim(0), pos_TK.dim(1)});
  MOE_RETURN_IF_ERROR(c.Done());
  return CheckIndices("Combine", "pos_TK", pos_TK, -1, rows_ND.dim(0));
}
absl::Status CheckCombineBackward(In rows_ND, In pos_TK, In w_TK, In dy_TD, Out drows_ND, Out dw_TK) {
  MOE_RETURN_IF_ERROR(OpCheck("CombineBackward", "rows_ND", rows_ND, 2).Rank("pos_TK", pos_TK, 2, true)
                          .Int32("pos_TK", pos_TK, {pos_TK.dim(0), pos_TK.dim(1)}).Like("w_TK", w_TK, {pos_TK.dim(0), pos_TK.dim(1)})
                          .Like("dy_TD", dy_TD, {pos_TK.dim(0), rows_ND.dim(1)}).Same("drows_ND", drows_ND).Like("dw_TK", dw_TK, {pos_TK.dim(0), pos_TK.dim(1)}).Done());
  return CheckIndices("CombineBackward", "pos_TK", pos_TK, -1, rows_ND.dim(0));
}

absl::Status CheckCrossEntropy(Out logits_TV, In labels_T, Out nll_T) {
  MOE_RETURN_IF_ERROR(OpCheck("CrossEntropy", "logits_TV", logits_TV, 2).Int32("labels_T", labels_T, {logits_TV.dim(0)}).Like("nll_T", nll_T, {logits_TV.dim(0)}).Done());
  return CheckIndices("CrossEntropy", "labels_T", labels_T, INT32_MIN, logits_TV.dim(1));
}

absl::Status CheckAdamW(const AdamWStep& s, In g, Out p, Out m, Out v) {
  return OpCheck("AdamW", "g", g, 0).Contiguous("g", g).Same("p", p).Contiguous("p", p).Same("m", m).Contiguous("m", m).Same("v", v).Contiguous("v", v)
      .That(s.step >= 1, "step is ", s.step, ", wanted 1 or more").Done();
}
absl::Status CheckSgd(In g, Out p, Out mom) {
  OpCheck c("Sgd", "g", g, 0);
  c.Contiguous("g", g).Same("p", p).Contiguous("p", p);
  if (mom.defined()) c.Same("momentum", mom).Contiguous("momentum", mom);
  return c.Done();
}

}  // namespace moe
