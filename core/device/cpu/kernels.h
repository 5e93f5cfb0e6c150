// The table of vector kernels of one instruction set: plain loops over contiguous memory, one thread, no checks.
//
// To add a kernel: write it over Vec in an .inc file of simd/ (a family per file, ending in a constexpr table of
// function pointers), name the table's struct here, and list both in simd/all.inc. Device code then calls
// kernels_.<family>.<kernel>(...) and never mentions an instruction set. The sizes are those of the run, tails are the
// kernel's business (ForVectors).
#ifndef MOE_CORE_DEVICE_CPU_KERNELS_H_
#define MOE_CORE_DEVICE_CPU_KERNELS_H_

#include <stdint.h>

#include "core/device/cpu/memory_kernels.h"

namespace moe {

enum class Isa;   // isa.h, which the kernels themselves must not include

struct ElementwiseKernels {
  void (*add)(const float* x, float* y, int64_t size);   // y += x
  void (*exp)(const float* x, float* y, int64_t size);
  void (*sigmoid)(const float* x, float* y, int64_t size);
  void (*normal_cdf)(const float* x, float* y, int64_t size);
};

struct ActivationKernels {
  using Forward = void (*)(const float* h, float* a, int64_t size);
  using Backward = void (*)(const float* h, const float* da, float* dh, int64_t size);
  void (*swiglu)(const float* gate, const float* up, float* a, int64_t size);
  void (*swiglu_grad)(const float* gate, const float* up, const float* da, float* dgate, float* dup, int64_t size);
  Forward gelu;
  Backward gelu_grad;
  Forward gelu_tanh;
  Backward gelu_tanh_grad;
  Forward relu;
  Backward relu_grad;
};

// A product without packing. With b transposed, c[i, j] = alpha sum_k a[i, k] b[j, k] + beta c[i, j] with any strides of c
// and a_k = 1; else b is [k, n], any strides of a and c_column = 1. beta = 0 never reads c.
struct FewRowsProduct {
  bool b_transposed;
  int64_t m, n, k;
  float alpha, beta;
  const float* a;
  int64_t a_row, a_k;
  const float* b;
  int64_t ldb;
  float* c;
  int64_t c_row, c_column;
};

// c_mn = alpha a b + beta c over packed operands (simd/gemm.inc has their layout); beta = 0 never reads c.
struct GemmBlock {
  int64_t m, n, k;
  float alpha, beta;
  const float* a;       // packed
  float* b;             // packed, or room for it: with b_from, b ([k, n], or [n, k] transposed) is packed on the way
  const float* b_from;
  int64_t ldb;
  bool b_transposed;
  float* c;
  int64_t ldc;
  const float* next_a;  // what will be packed next (or null), read into the cache on the way: rows of next_length floats
  int64_t next_rows, next_length, next_stride;
};

struct GemmKernels {
  // a is [m, k] or, transposed, [k, m]; packed size m * k with m rounded up to a multiple of 12.
  void (*pack_a)(bool transposed, const float* a, int64_t lda, int64_t m, int64_t k, float* to);
  // Packed b has k * n floats with n rounded up to a multiple of 32.
  void (*block)(const GemmBlock& block);
  void (*few_rows)(const FewRowsProduct& product);
};

// One sequence, one key/value head, the query heads that read it. Pointers are to the sequence's first row and the first
// head's first column; query head x begins x * head_dim columns and its lse x * seq elements further on.
struct AttentionTask {
  int64_t seq, head_dim, query_heads;
  int64_t queries, query_begin;   // rows of q, o, lse, d_o and dq, and the position of the first
  float scale;
  const float *q, *k, *v;
  int64_t ldq, ldk, ldv;
  float *o, *lse;   // outputs of forward, inputs of backward
  int64_t ldo;
  const float* d_o;   // the rest for backward only
  int64_t lddo;
  float *dq, *dk, *dv;
  int64_t lddq, lddk, lddv;
};

struct AttentionKernels {
  int64_t (*forward_scratch)(int64_t seq, int64_t head_dim);   // in floats
  void (*forward)(const AttentionTask& task, float* scratch);
  int64_t (*backward_scratch)(int64_t seq, int64_t head_dim);
  void (*backward)(const AttentionTask& task, float* scratch);
};

struct PeakKernels {
  int64_t (*fma_chains)(int64_t rounds);   // returns the floating-point operations done
};

struct Kernels {
  ElementwiseKernels elementwise;
  ActivationKernels activation;
  GemmKernels gemm;
  AttentionKernels attention;
  PeakKernels peak;
  RunKernels runs;
  UpdateKernels update;
  RowKernels rows;
  SoftmaxKernels softmax;
};

// `isa` must be one of AvailableIsas().
const Kernels& KernelsOf(Isa isa);

}  // namespace moe
#endif  // MOE_CORE_DEVICE_CPU_KERNELS_H_
