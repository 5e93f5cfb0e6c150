// The one matrix product of the reference, used plain and per group.
#ifndef MOE_CORE_DEVICE_REFERENCE_MATRIX_H_
#define MOE_CORE_DEVICE_REFERENCE_MATRIX_H_

#include <cstdint>
#include <vector>

namespace moe {

// A matrix by strides, so that a transpose is a swap of the two.
template <typename T>
struct Matrix {
  T* data;
  int64_t row_stride, column_stride;
  T& operator()(int64_t i, int64_t j) const { return data[i * row_stride + j * column_stride]; }
};

// c_MN = alpha * a_MK * b_KN + beta * c. The sum over k is kept in float64, k ascending; beta = 0 never reads c.
template <typename T>
void MatrixProduct(int64_t M, int64_t N, int64_t K, double alpha, Matrix<const T> a, Matrix<const T> b, double beta, Matrix<T> c) {
  std::vector<double> row(N);
  for (int64_t m = 0; m < M; ++m) {
    row.assign(N, 0.0);
    if (b.column_stride == 1) {   // the inner loop runs along the rows of b, whatever its form
      for (int64_t k = 0; k < K; ++k)
        for (int64_t n = 0; n < N; ++n) row[n] += static_cast<double>(a(m, k)) * b(k, n);
    } else {
      for (int64_t n = 0; n < N; ++n)
        for (int64_t k = 0; k < K; ++k) row[n] += static_cast<double>(a(m, k)) * b(k, n);
    }
    for (int64_t n = 0; n < N; ++n) c(m, n) = static_cast<T>(beta == 0 ? alpha * row[n] : alpha * row[n] + beta * c(m, n));
  }
}

}  // namespace moe
#endif  // MOE_CORE_DEVICE_REFERENCE_MATRIX_H_
