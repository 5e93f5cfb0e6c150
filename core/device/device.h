// The only door to arithmetic. Model, layer and engine code above this interface holds no loop over floats.
//
// Three implementations: core/device/reference (scalar, float32 and float64, obviously right),
// core/device/cpu (float32, fast), core/device/cuda (later). One parametrised test runs every operation on
// every implementation and compares it with the reference over odd sizes.
//
// Conventions
//  * Views are inputs (In) or outputs (Out); an absent view (defined() == false) means "not given".
//    Unless an operation says otherwise, outputs are overwritten and never alias inputs.
//  * Letters of shapes: T tokens, D model width, F hidden width, E experts, e local experts, K top-k,
//    N = rows of a permuted buffer, R rows received, V vocabulary, S sequence length, B sequences, H heads,
//    G key/value heads, h head size, P positions. 2-D operands may have padded rows; last dimension contiguous.
//  * "accumulate" adds to the output instead of overwriting it.
//  * Ids, indices and labels are int32. Empty tensors (T = 0, R = 0) are legal everywhere.
//  * Wrong shapes or dtypes are INVALID_ARGUMENT naming the operation, the operand and both shapes.
//  * Results are the same bits whatever the number of worker threads: work is cut by shape alone.
//  * Statistics (means, norms, softmax sums) are kept in float32 at least; scalar results are float64.
//  * Single caller: one thread at a time calls one Device.
#ifndef MOE_CORE_DEVICE_DEVICE_H_
#define MOE_CORE_DEVICE_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/base/tensor.h"

namespace moe {

using In = const TensorView&;
using Out = const TensorView&;

// Form of a matrix product over groups of rows (one group per local expert).
enum class GroupedForm {
  kForward,     // y_RO[r] = w_eOI[g] * x_RI[r]          a = x, b = w, c = y
  kInputGrad,   // dx_RI[r] = w_eOI[g]^T * dy_RO[r]      a = dy, b = w, c = dx
  kWeightGrad,  // dw_eOI[g] = sum_r dy_RO[r] x_RI[r]^T  a = dy, b = x, c = dw
};

enum class Activation {
  kSwiGlu,    // h_R(2F) = [gate | up]; a = gate * sigmoid(gate) * up   (arXiv 2002.05202)
  kGelu,      // exact: h * Phi(h), by erf
  kGeluTanh,  // 0.5 h (1 + tanh(sqrt(2/pi) (h + 0.044715 h^3)))        (arXiv 1606.08415)
  kRelu,
};
constexpr int ActivationInputs(Activation a) { return a == Activation::kSwiGlu ? 2 : 1; }

// Causal attention of grouped-query heads: query head i reads key/value head i / (heads / kv_heads).
struct AttentionShape {
  int64_t batch = 0;     // B sequences of S rows each; rows run [b, s], s fastest
  int64_t seq = 0;       // S
  int64_t heads = 0;     // H
  int64_t kv_heads = 0;  // G, divides H
  int64_t head_dim = 0;  // h
  double scale = 0;      // usually 1 / sqrt(h)
  // Queries of a part of each sequence, rows [b, i] with i < query_seq: query i stands at position query_begin + i and reads
  // keys 0 .. query_begin + i. query_seq 0: all of S (query_begin is 0 then).
  int64_t query_seq = 0;
  int64_t query_begin = 0;
  int64_t queries() const { return query_seq == 0 ? seq : query_seq; }
};

struct AdamWStep {
  double lr = 0, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0;
  int64_t step = 1;        // 1 for the first update (bias correction)
  double grad_scale = 1;   // gradients are multiplied by this first (clipping)
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string name() const = 0;      // "cpu", "reference"
  virtual std::string Describe() const = 0;  // for `moe info`: kernels in use, threads
  virtual bool Supports(DType dtype) const = 0;
  virtual int num_threads() const = 0;

  // ---- memory. 64-byte aligned; freed with Free (null is fine). RESOURCE_EXHAUSTED names the size.
  virtual absl::StatusOr<void*> Allocate(int64_t bytes) = 0;
  virtual void Free(void* data) = 0;
  virtual int64_t allocated_bytes() const = 0;       // now
  virtual int64_t peak_allocated_bytes() const = 0;  // since the device was made
  virtual absl::Status CopyToHost(void* dst, In src) = 0;    // src contiguous
  virtual absl::Status CopyFromHost(Out dst, const void* src) = 0;
  virtual absl::Status Synchronize() = 0;            // all work submitted so far has ended

  // ---- elementwise (any rank, equal shapes)
  virtual absl::Status Fill(Out y, double value) = 0;
  virtual absl::Status Copy(In x, Out y) = 0;                       // converts float32 <-> float64
  virtual absl::Status Scale(Out y, double alpha) = 0;              // y *= alpha
  virtual absl::Status Axpy(double alpha, In x, Out y) = 0;         // y += alpha * x
  virtual absl::Status Multiply(In a, In b, Out y) = 0;             // y = a * b; y may alias a or b; contiguous
  // y[i] = low + (high - low) * RandomUniform(key, first + i) (core/base/random.h), contiguous.
  virtual absl::Status RandomUniform(Out y, uint64_t key, int64_t first, double low, double high) = 0;
  // y[i] = mean + stddev * RandomNormal(key, first + i) (core/base/random.h), row-major over y.
  virtual absl::Status RandomNormal(Out y, uint64_t key, int64_t first, double mean, double stddev) = 0;

  // ---- reductions to the host, float64, fixed order
  virtual absl::StatusOr<double> Sum(In x) = 0;
  virtual absl::StatusOr<double> SumSquares(In x) = 0;
  virtual absl::StatusOr<double> MaxAbs(In x) = 0;   // 0 of nothing; not a number when any element is
  virtual absl::Status ColumnSum(In x_TE, Out sum_E, bool accumulate) = 0;   // sum_E of x's dtype

  // ---- matrix products
  // c_MN = alpha * op(a) * op(b) + beta * c, op transposes when asked. beta = 0 never reads c.
  virtual absl::Status Gemm(bool trans_a, bool trans_b, double alpha, In a, In b, double beta, Out c) = 0;
  // Rows offsets[g] .. offsets[g+1] of the row operands belong to group g; offsets has e + 1 entries, starts
  // at 0, ends at R. beta as in Gemm (0 or 1). A group without rows gets zero (beta = 0) or nothing.
  virtual absl::Status GroupedGemm(GroupedForm form, In a, In b, absl::Span<const int64_t> offsets, double beta, Out c) = 0;
  virtual absl::Status GroupedBias(In b_eO, absl::Span<const int64_t> offsets, Out y_RO) = 0;          // y += b[g]
  virtual absl::Status GroupedBiasGrad(In dy_RO, absl::Span<const int64_t> offsets, Out db_eO) = 0;    // db += sum

  // ---- activations: h_RH with H = F * ActivationInputs
  virtual absl::Status ActivationForward(Activation kind, In h_RH, Out a_RF) = 0;
  // dh may alias h (in place).
  virtual absl::Status ActivationBackward(Activation kind, In h_RH, In da_RF, Out dh_RH) = 0;

  // ---- normalisation: y = x / sqrt(mean(x^2) + eps) * w   (arXiv 1910.07467)
  virtual absl::Status RmsNormForward(In x_TD, In w_D, double eps, Out y_TD, Out rstd_T) = 0;
  // dx is overwritten or, with accumulate_dx, added to; dw is always added to. Fixed order over rows.
  virtual absl::Status RmsNormBackward(In x_TD, In w_D, In rstd_T, In dy_TD, Out dx_TD, bool accumulate_dx, Out dw_D) = 0;

  // ---- embedding and rotary position
  virtual absl::Status EmbeddingForward(In ids_T, In w_VD, Out y_TD) = 0;      // id outside [0, V): error with the position
  virtual absl::Status EmbeddingBackward(In ids_T, In dy_TD, Out dw_VD) = 0;   // adds, in token order
  // In place on x_T(H*h): in each head the pair (x_i, x_{i + h/2}) turns by the angle whose cosine and sine are
  // cos_P(h/2)[pos], sin_P(h/2)[pos]; inverse turns back (the backward pass). arXiv 2104.09864, half rotation.
  virtual absl::Status Rotary(Out x_TQ, int64_t head_dim, In positions_T, In cos_PC, In sin_PC, bool inverse) = 0;

  // ---- attention. q_T(H*h), k_T(G*h), v_T(G*h), o_T(H*h) with T = B*S, rows may be padded (slices of a fused
  // projection). lse_BHS = log of the softmax's denominator, kept for backward. Never stores [S, S] of a head.
  virtual absl::Status AttentionForward(const AttentionShape& s, In q, In k, In v, Out o, Out lse_BHS) = 0;
  // dq, dk, dv are overwritten.
  virtual absl::Status AttentionBackward(const AttentionShape& s, In q, In k, In v, In o, In lse_BHS, In do_, Out dq, Out dk, Out dv) = 0;

  // ---- gates
  virtual absl::Status Softmax(In l_TE, Out p_TE, Out lse_T) = 0;             // lse_T optional; p may alias l
  // dl = p * (dp - sum_e p dp); dl may alias dp.
  virtual absl::Status SoftmaxBackward(In p_TE, In dp_TE, Out dl_TE) = 0;
  // The K largest per row by descending score, ties to the lower column. NaN or +-inf: INVALID_ARGUMENT naming the row.
  virtual absl::Status TopK(In s_TE, Out ids_TK) = 0;
  virtual absl::Status GatherColumns(In p_TE, In ids_TK, Out w_TK) = 0;              // w[t,k] = p[t, ids[t,k]]; id -1 gives 0
  virtual absl::Status ScatterColumns(In dw_TK, In ids_TK, Out dp_TE) = 0;           // dp[t, ids[t,k]] += dw[t,k]; id -1 skipped
  // w = raw / (sum_k raw + eps) * scale; w may alias raw. Rows whose sum is 0 (all dropped) give 0.
  virtual absl::Status NormalizeRows(In raw_TK, double eps, double scale, Out w_TK) = 0;
  virtual absl::Status NormalizeRowsBackward(In raw_TK, double eps, double scale, In dw_TK, Out draw_TK) = 0;
  virtual absl::Status AddRow(In c_E, double alpha, Out y_TE) = 0;                   // y[t,:] += alpha * c
  virtual absl::Status AddScaledRows(In s_T, In x_TE, double alpha, Out y_TE) = 0;   // y[t,:] += alpha * s[t] * x[t,:]
  // Rows t with valid_T[t] == 0 become 0 (valid_T is uint8).
  virtual absl::Status MaskRows(In valid_T, Out y_TE) = 0;

  // ---- permute and combine. Index -1: a zero row (Gather), no contribution (Combine).
  virtual absl::Status GatherRows(In x_TD, In index_N, Out y_ND) = 0;
  // y[t] (+)= sum_k w[t,k] * rows[pos[t,k]], k ascending, w absent = 1.
  virtual absl::Status Combine(In rows_ND, In pos_TK, In w_TK, Out y_TD, bool accumulate) = 0;
  // drows[pos[t,k]] = w[t,k] * dy[t]; dw[t,k] = <dy[t], rows[pos[t,k]]> (0 where pos is -1). Every row of drows is the
  // target of exactly one (t,k), so all of it is written.
  virtual absl::Status CombineBackward(In rows_ND, In pos_TK, In w_TK, In dy_TD, Out drows_ND, Out dw_TK) = 0;

  // ---- loss. nll_T[t] = -log softmax(logits[t])[labels[t]], 0 where the label is negative (ignored). With
  // write_grad the logits are replaced by d(grad_scale * sum nll) / d logits (0 in ignored rows).
  virtual absl::Status CrossEntropy(Out logits_TV, In labels_T, Out nll_T, bool write_grad, double grad_scale) = 0;

  // ---- optimizer, flat buffers of equal size
  // g' = grad_scale g; m = b1 m + (1-b1) g'; v = b2 v + (1-b2) g'^2; p -= lr (m^/(sqrt(v^)+eps) + weight_decay p)
  // (arXiv 1711.05101).
  virtual absl::Status AdamW(const AdamWStep& s, In g, Out p, Out m, Out v) = 0;
  // p -= lr * (mom + weight_decay p), mom = momentum mom + grad_scale g; mom absent: plain gradient.
  virtual absl::Status Sgd(double lr, double momentum, double weight_decay, double grad_scale, In g, Out p, Out mom) = 0;

  // ---- the machine's limit, measured now: fused multiply-adds of all workers, GFLOP/s in float32.
  virtual absl::StatusOr<double> MeasurePeakGflops() = 0;
};

// Owns memory of a device.
class Buffer {
 public:
  Buffer() = default;
  static absl::StatusOr<Buffer> Make(Device* device, int64_t bytes) {
    MOE_ASSIGN_OR_RETURN(void* p, device->Allocate(bytes));
    Buffer b;
    b.device_ = device; b.data_ = p; b.bytes_ = bytes;
    return b;
  }
  Buffer(Buffer&& o) noexcept { *this = std::move(o); }
  Buffer& operator=(Buffer&& o) noexcept {
    std::swap(device_, o.device_); std::swap(data_, o.data_); std::swap(bytes_, o.bytes_);
    return *this;
  }
  ~Buffer() { if (device_) device_->Free(data_); }
  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

// core/device/reference: scalar loops, float32 and float64, one thread.
std::unique_ptr<Device> MakeReferenceDevice();
// core/device/cpu: float32; `threads` workers (>= 1; the caller is one of them).
absl::StatusOr<std::unique_ptr<Device>> MakeCpuDevice(int threads);

}  // namespace moe
#endif  // MOE_CORE_DEVICE_DEVICE_H_
