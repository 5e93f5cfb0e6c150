// Causal attention, one (sequence, head, query row) at a time, so that no [S, S] is ever stored.
//   s_ij = scale q_i k_j, p_ij = exp(s_ij - lse_i), o_i = sum_j p_ij v_j
//   ds_ij = p_ij (do_i v_j - do_i o_i): the softmax's backward with sum_j p_ij (do_i v_j) = do_i o_i (arXiv 2205.14135)
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/device/reference/dispatch.h"
#include "core/device/reference/reference_device.h"

namespace moe {
namespace {

template <typename T>
double Dot(const T* a, const T* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

}  // namespace

absl::Status ReferenceDevice::AttentionForward(const AttentionShape& s, In q, In k, In v, Out o, Out lse_BHS) {
  MOE_RETURN_IF_ERROR(CheckAttention(s, q, k, v, o, lse_BHS));
  return ForFloat(q.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const int64_t h = s.head_dim;
    std::vector<double> p(s.seq), out(h);
    T* lse = lse_BHS.as<T>();
    for (int64_t b = 0; b < s.batch; ++b) {
      for (int64_t head = 0; head < s.heads; ++head) {
        const int64_t kv = head / (s.heads / s.kv_heads) * h;
        for (int64_t i = 0; i < s.queries(); ++i) {
          const int64_t row = b * s.queries() + i, position = s.query_begin + i;
          const T* query = Row<T>(q, row) + head * h;
          double largest = -std::numeric_limits<double>::infinity(), sum = 0;
          for (int64_t j = 0; j <= position; ++j) {
            p[j] = s.scale * Dot(query, Row<T>(k, b * s.seq + j) + kv, h);
            largest = std::max(largest, p[j]);
          }
          std::fill(out.begin(), out.end(), 0.0);
          for (int64_t j = 0; j <= position; ++j) {
            const double e = std::exp(p[j] - largest);
            const T* value = Row<T>(v, b * s.seq + j) + kv;
            sum += e;
            for (int64_t d = 0; d < h; ++d) out[d] += e * value[d];
          }
          for (int64_t d = 0; d < h; ++d) Row<T>(o, row)[head * h + d] = static_cast<T>(out[d] / sum);
          *lse++ = static_cast<T>(largest + std::log(sum));
        }
      }
    }
  });
}

absl::Status ReferenceDevice::AttentionBackward(const AttentionShape& s, In q, In k, In v, In o, In lse_BHS, In do_, Out dq, Out dk, Out dv) {
  MOE_RETURN_IF_ERROR(CheckAttentionBackward(s, q, k, v, o, lse_BHS, do_, dq, dk, dv));
  return ForFloat(q.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const int64_t h = s.head_dim, group = s.heads / s.kv_heads;
    std::vector<double> dquery(h), dkeys(s.seq * h), dvalues(s.seq * h);
    for (int64_t b = 0; b < s.batch; ++b) {
      for (int64_t kv = 0; kv < s.kv_heads; ++kv) {
        std::fill(dkeys.begin(), dkeys.end(), 0.0);
        std::fill(dvalues.begin(), dvalues.end(), 0.0);
        for (int64_t head = kv * group; head < (kv + 1) * group; ++head) {
          const T* lse = lse_BHS.as<T>() + (b * s.heads + head) * s.queries();
          for (int64_t i = 0; i < s.queries(); ++i) {
            const int64_t row = b * s.queries() + i, position = s.query_begin + i;
            const T *query = Row<T>(q, row) + head * h, *dout = Row<T>(do_, row) + head * h;
            const double delta = Dot(dout, Row<T>(o, row) + head * h, h);
            std::fill(dquery.begin(), dquery.end(), 0.0);
            for (int64_t j = 0; j <= position; ++j) {
              const T *key = Row<T>(k, b * s.seq + j) + kv * h, *value = Row<T>(v, b * s.seq + j) + kv * h;
              const double p = std::exp(s.scale * Dot(query, key, h) - lse[i]);
              const double ds = s.scale * p * (Dot(dout, value, h) - delta);
              for (int64_t d = 0; d < h; ++d) {
                dquery[d] += ds * key[d];
                dkeys[j * h + d] += ds * query[d];
                dvalues[j * h + d] += p * dout[d];
              }
            }
            for (int64_t d = 0; d < h; ++d) Row<T>(dq, row)[head * h + d] = static_cast<T>(dquery[d]);
          }
        }
        for (int64_t j = 0; j < s.seq; ++j) {
          for (int64_t d = 0; d < h; ++d) {
            Row<T>(dk, b * s.seq + j)[kv * h + d] = static_cast<T>(dkeys[j * h + d]);
            Row<T>(dv, b * s.seq + j)[kv * h + d] = static_cast<T>(dvalues[j * h + d]);
          }
        }
      }
    }
  });
}

}  // namespace moe
