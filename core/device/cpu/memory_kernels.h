// Kernels of the operations that memory bounds (members of Kernels, kernels.h): everything but products, activations
// and attention. One run or one row per call, one thread, no checks.
#ifndef MOE_CORE_DEVICE_CPU_MEMORY_KERNELS_H_
#define MOE_CORE_DEVICE_CPU_MEMORY_KERNELS_H_

#include <stdint.h>

namespace moe {

// Runs of contiguous elements; simd/runs.inc.
struct RunKernels {
  void (*fill)(float value, float* y, int64_t size);
  void (*scale)(float alpha, float* y, int64_t size);
  void (*axpy)(float alpha, const float* x, float* y, int64_t size);          // y += alpha * x
  void (*multiply)(const float* a, const float* b, float* y, int64_t size);   // y may be a or b
  void (*widen)(const float* x, double* y, int64_t size);
  void (*narrow)(const double* x, float* y, int64_t size);
  double (*sum)(const float* x, int64_t size);
  double (*sum_squares)(const float* x, int64_t size);
  void (*add_wide)(const float* x, double* y, int64_t size);                  // y += x
};

// Optimizer updates; simd/update.inc.
struct AdamWFactors {
  float grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
  float step;                // lr / (1 - beta1^t)
  float inverse_root;        // 1 / sqrt(1 - beta2^t)
  float eps, decay;          // decay = lr * weight_decay
};
struct UpdateKernels {
  void (*adamw)(const AdamWFactors& f, const float* g, float* p, float* m, float* v, int64_t size);
  // mom may be null.
  void (*sgd)(float lr, float momentum, float weight_decay, float grad_scale, const float* g, float* p, float* mom, int64_t size);
};

// Rows of hidden states; simd/rows.inc.
struct RowKernels {
  float (*rms_norm)(const float* x, const float* w, double eps, float* y, int64_t size);   // returns rstd
  // dw += dy * x * rstd
  void (*rms_norm_grad)(const float* x, const float* w, float rstd, const float* dy, float* dx, bool accumulate, float* dw, int64_t size);
  // `heads` heads of 2 * half elements each turn by the same angles.
  void (*rotary)(float* x, int64_t heads, int64_t half, const float* cosines, const float* sines, bool inverse);
  // y (+)= sum_i w[i] * rows[i], i ascending.
  void (*combine)(const float* const* rows, const float* w, int64_t count, float* y, int64_t size, bool accumulate);
  // drow = w * dy; returns <dy, row>.
  float (*combine_grad)(const float* row, float w, const float* dy, float* drow, int64_t size);
};

// Rows of scores; simd/softmax.inc.
struct SoftmaxKernels {
  // p = scale * exp(l - max) / sum, p may be l.
  void (*softmax)(float scale, const float* l, float* p, int64_t size, float* max, float* sum);
  void (*softmax_grad)(const float* p, const float* dp, float* dl, int64_t size);   // dl may be dp
  void (*max_sum)(const float* l, int64_t size, float* max, float* sum);            // of exp(l - max)
};

}  // namespace moe
#endif  // MOE_CORE_DEVICE_CPU_MEMORY_KERNELS_H_
