// The obviously right implementation of Device: scalar loops, float32 and float64, one thread. It defines what the
// fast implementations must compute, it is the float64 machine of gradient checks, and it is the base class from which
// a faster device starts: what that one does not override still works.
//
// Sums are kept in float64 whatever the dtype, so that float32 results carry a single rounding.
#ifndef MOE_CORE_DEVICE_REFERENCE_REFERENCE_DEVICE_H_
#define MOE_CORE_DEVICE_REFERENCE_REFERENCE_DEVICE_H_

#include <string>

#include "core/device/device.h"

namespace moe {

class ReferenceDevice : public Device {
 public:
  std::string name() const override { return "reference"; }
  std::string Describe() const override { return "reference: scalar loops, float32 and float64, 1 thread"; }
  bool Supports(DType dtype) const override { return dtype == DType::kF32 || dtype == DType::kF64; }
  int num_threads() const override { return 1; }

  absl::StatusOr<void*> Allocate(int64_t bytes) override;
  void Free(void* data) override;
  int64_t allocated_bytes() const override { return allocated_; }
  int64_t peak_allocated_bytes() const override { return peak_; }
  absl::Status CopyToHost(void* dst, In src) override;
  absl::Status CopyFromHost(Out dst, const void* src) override;
  absl::Status Synchronize() override { return absl::OkStatus(); }

  absl::Status Fill(Out y, double value) override;
  absl::Status Copy(In x, Out y) override;
  absl::Status Scale(Out y, double alpha) override;
  absl::Status Axpy(double alpha, In x, Out y) override;
  absl::Status Multiply(In a, In b, Out y) override;
  absl::Status RandomUniform(Out y, uint64_t key, int64_t first, double low, double high) override;
  absl::Status RandomNormal(Out y, uint64_t key, int64_t first, double mean, double stddev) override;

  absl::StatusOr<double> Sum(In x) override;
  absl::StatusOr<double> SumSquares(In x) override;
  absl::StatusOr<double> MaxAbs(In x) override;
  absl::Status ColumnSum(In x_TE, Out sum_E, bool accumulate) override;

  absl::Status Gemm(bool trans_a, bool trans_b, double alpha, In a, In b, double beta, Out c) override;
  absl::Status GroupedGemm(GroupedForm form, In a, In b, absl::Span<const int64_t> offsets, double beta, Out c) override;
  absl::Status GroupedBias(In b_eO, absl::Span<const int64_t> offsets, Out y_RO) override;
  absl::Status GroupedBiasGrad(In dy_RO, absl::Span<const int64_t> offsets, Out db_eO) override;

  absl::Status ActivationForward(Activation kind, In h_RH, Out a_RF) override;
  absl::Status ActivationBackward(Activation kind, In h_RH, In da_RF, Out dh_RH) override;

  absl::Status RmsNormForward(In x_TD, In w_D, double eps, Out y_TD, Out rstd_T) override;
  absl::Status RmsNormBackward(In x_TD, In w_D, In rstd_T, In dy_TD, Out dx_TD, bool accumulate_dx, Out dw_D) override;

  absl::Status EmbeddingForward(In ids_T, In w_VD, Out y_TD) override;
  absl::Status EmbeddingBackward(In ids_T, In dy_TD, Out dw_VD) override;
  absl::Status Rotary(Out x_TQ, int64_t head_dim, In positions_T, In cos_PC, In sin_PC, bool inverse) override;

  absl::Status AttentionForward(const AttentionShape& s, In q, In k, In v, Out o, Out lse_BHS) override;
  absl::Status AttentionBackward(const AttentionShape& s, In q, In k, In v, In o, In lse_BHS, In do_, Out dq, Out dk, Out dv) override;

  absl::Status Softmax(In l_TE, Out p_TE, Out lse_T) override;
  absl::Status SoftmaxBackward(In p_TE, In dp_TE, Out dl_TE) override;
  absl::Status TopK(In s_TE, Out ids_TK) override;
  absl::Status GatherColumns(In p_TE, In ids_TK, Out w_TK) override;
  absl::Status ScatterColumns(In dw_TK, In ids_TK, Out dp_TE) override;
  absl::Status NormalizeRows(In raw_TK, double eps, double scale, Out w_TK) override;
  absl::Status NormalizeRowsBackward(In raw_TK, double eps, double scale, In dw_TK, Out draw_TK) override;
  absl::Status AddRow(In c_E, double alpha, Out y_TE) override;
  absl::Status AddScaledRows(In s_T, In x_TE, double alpha, Out y_TE) override;
  absl::Status MaskRows(In valid_T, Out y_TE) override;

  absl::Status GatherRows(In x_TD, In index_N, Out y_ND) override;
  absl::Status Combine(In rows_ND, In pos_TK, In w_TK, Out y_TD, bool accumulate) override;
  absl::Status CombineBackward(In rows_ND, In pos_TK, In w_TK, In dy_TD, Out drows_ND, Out dw_TK) override;

  absl::Status CrossEntropy(Out logits_TV, In labels_T, Out nll_T, bool write_grad, double grad_scale) override;

  absl::Status AdamW(const AdamWStep& s, In g, Out p, Out m, Out v) override;
  absl::Status Sgd(double lr, double momentum, double weight_decay, double grad_scale, In g, Out p, Out mom) override;

  absl::StatusOr<double> MeasurePeakGflops() override;

 private:
  int64_t allocated_ = 0;
  int64_t peak_ = 0;
};

}  // namespace moe
#endif  // MOE_CORE_DEVICE_REFERENCE_REFERENCE_DEVICE_H_
