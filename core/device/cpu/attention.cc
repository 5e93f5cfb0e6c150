// Attention by (sequence, key/value head): one worker sums the gradients of a key over all queries that read it, in one
// order. Few such pairs (long sequences, small batches) are cut further by query head in the forward pass, where heads
// do not meet.
#include "core/device/check.h"
#include "core/device/cpu/cpu_device.h"

namespace moe {
namespace {

constexpr int64_t kEnoughTasks = 64;

// What all tasks have in common; At() gives the one of a sequence and a run of query heads.
struct Operands {
  const AttentionShape& s;
  In q, k, v, o, lse, d_o;
  Out dq, dk, dv;

  AttentionTask At(int64_t b, int64_t first_head, int64_t heads) const {
    const int64_t query_row = b * s.queries(), key_row = b * s.seq, query = first_head * s.head_dim, key = first_head / (s.heads / s.kv_heads) * s.head_dim;
    AttentionTask t;
    t.seq = s.seq, t.head_dim = s.head_dim, t.query_heads = heads;
    t.queries = s.queries(), t.query_begin = s.query_begin;
    t.scale = static_cast<float>(s.scale);
    const auto at = [](In x, int64_t row, int64_t column) { return x.defined() ? x.as<float>() + row * x.stride(0) + column : nullptr; };
    const auto stride = [](In x) { return x.defined() ? x.stride(0) : 0; };
    t.q = at(q, query_row, query), t.ldq = stride(q);
    t.k = at(k, key_row, key), t.ldk = stride(k);
    t.v = at(v, key_row, key), t.ldv = stride(v);
    t.o = at(o, query_row, query), t.ldo = stride(o);
    t.lse = lse.as<float>() + (b * s.heads + first_head) * s.queries();
    t.d_o = at(d_o, query_row, query), t.lddo = stride(d_o);
    t.dq = at(dq, query_row, query), t.lddq = stride(dq);
    t.dk = at(dk, key_row, key), t.lddk = stride(dk);
    t.dv = at(dv, key_row, key), t.lddv = stride(dv);
    return t;
  }
};

}  // namespace

absl::Status CpuDevice::AttentionForward(const AttentionShape& s, In q, In k, In v, Out o, Out lse_BHS) {
  if (q.dtype() != DType::kF32) return ReferenceDevice::AttentionForward(s, q, k, v, o, lse_BHS);
  MOE_RETURN_IF_ERROR(CheckAttention(s, q, k, v, o, lse_BHS));
  const TensorView absent;
  const Operands all{s, q, k, v, o, lse_BHS, absent, absent, absent, absent};
  const int64_t heads = s.batch * s.kv_heads < kEnoughTasks ? 1 : s.heads / s.kv_heads, runs = s.heads / heads;
  MOE_RETURN_IF_ERROR(worker_scratch_.Reserve(kernels_.attention.forward_scratch(s.seq, s.head_dim)));
  pool_.ParallelFor(s.seq == 0 ? 0 : s.batch * runs, [&](int64_t task, int worker) {
    kernels_.attention.forward(all.At(task / runs, task % runs * heads, heads), worker_scratch_.of(worker));
  });
  return absl::OkStatus();
}

absl::Status CpuDevice::AttentionBackward(const AttentionShape& s, In q, In k, In v, In o, In lse_BHS, In do_, Out dq, Out dk, Out dv) {
  if (q.dtype() != DType::kF32) return ReferenceDevice::AttentionBackward(s, q, k, v, o, lse_BHS, do_, dq, dk, dv);
  MOE_RETURN_IF_ERROR(CheckAttentionBackward(s, q, k, v, o, lse_BHS, do_, dq, dk, dv));
  const Operands all{s, q, k, v, o, lse_BHS, do_, dq, dk, dv};
  const int64_t heads = s.heads / s.kv_heads;
  MOE_RETURN_IF_ERROR(worker_scratch_.Reserve(kernels_.attention.backward_scratch(s.seq, s.head_dim)));
  pool_.ParallelFor(s.seq == 0 ? 0 : s.batch * s.kv_heads, [&](int64_t task, int worker) {
    kernels_.attention.backward(all.At(task / s.kv_heads, task % s.kv_heads * heads, heads), worker_scratch_.of(worker));
  });
  return absl::OkStatus();
}

}  // namespace moe
