// Causal attention of grouped-query heads.
#include <cmath>

#include "core/device/tests/harness.h"

namespace moe::testing {
namespace {

class Attention : public DeviceTest {};
MOE_INSTANTIATE_DEVICE_TEST(Attention);

struct Size { int64_t batch, seq, heads, kv_heads, head_dim; };
const Size kSizes[] = {{0, 5, 2, 1, 4},  {2, 0, 2, 1, 4},   {1, 1, 1, 1, 2},   {3, 2, 2, 2, 8},  {2, 3, 4, 2, 5},   {1, 7, 6, 1, 16}, {2, 15, 2, 1, 32},
                       {1, 16, 4, 4, 8}, {2, 17, 3, 3, 16}, {1, 31, 2, 2, 64}, {1, 33, 4, 2, 33}, {2, 64, 2, 1, 32}, {1, 65, 1, 1, 7}, {1, 130, 4, 2, 16}, {1, 257, 2, 1, 32}};

AttentionShape Shape(const Size& z) {
  AttentionShape s;
  s.batch = z.batch;
  s.seq = z.seq;
  s.heads = z.heads;
  s.kv_heads = z.kv_heads;
  s.head_dim = z.head_dim;
  s.scale = 1 / std::sqrt(static_cast<double>(z.head_dim));
  return s;
}

TEST_P(Attention, ForwardAndBackward) {
  int i = 0;
  for (const Size& z : kSizes) {
    for (double spread : {1.0, 4.0}) {   // 4: nearly one-hot rows
      const AttentionShape s = Shape(z);
      const int64_t T = z.batch * z.seq, qd = z.heads * z.head_dim, kd = z.kv_heads * z.head_dim;
      pad_ = ++i % 3;
      SCOPED_TRACE(absl::StrCat("batch ", z.batch, " seq ", z.seq, " heads ", z.heads, "/", z.kv_heads, " head_dim ", z.head_dim, " spread ", spread, " padding ", pad_, " seed ", seed_));
      Operand q = Random({T, qd}, spread), k = Random({T, kd}, spread), v = Random({T, kd}), o = Poison({T, qd}), lse = Poison({z.batch, z.heads, z.seq});
      Operand do_ = Random({T, qd}), dq = Poison({T, qd}), dk = Poison({T, kd}), dv = Poison({T, kd});
      Run([&](Device* d, const View& on) { return d->AttentionForward(s, on(q), on(k), on(v), on(o), on(lse)); });
      ExpectClose("o", o, 5e-6 * spread);
      ExpectClose("lse", lse, 2e-6 * spread);
      Run([&](Device* d, const View& on) { return d->AttentionBackward(s, on(q), on(k), on(v), on(o), on(lse), on(do_), on(dq), on(dk), on(dv)); });
      ExpectClose("dq", dq, 1e-5 * spread * spread);
      ExpectClose("dk", dk, 1e-5 * spread * spread);
      ExpectClose("dv", dv, 1e-5 * spread * spread);
    }
  }
}

// Slices of one fused projection, and gradients into slices of one buffer, as the model calls it.
TEST_P(Attention, SlicesOfAFusedProjection) {
  const AttentionShape s = Shape({2, 9, 4, 2, 8});
  Operand qkv = Random({18, 64}), dqkv = Poison({18, 64}), o = Poison({18, 32}), lse = Poison({2, 4, 9}), do_ = Random({18, 32});
  const auto run = [&](Device* d, In x, In dx, In out, In l, In dout) -> absl::Status {
    MOE_RETURN_IF_ERROR(d->AttentionForward(s, x.Columns(0, 32), x.Columns(32, 16), x.Columns(48, 16), out, l));
    return d->AttentionBackward(s, x.Columns(0, 32), x.Columns(32, 16), x.Columns(48, 16), out, l, dout, dx.Columns(0, 32), dx.Columns(32, 16), dx.Columns(48, 16));
  };
  Run([&](Device* d, const View& on) { return run(d, on(qkv), on(dqkv), on(o), on(lse), on(do_)); });
  ExpectClose("o", o, 5e-6);
  ExpectClose("dqkv", dqkv, 1e-5);
}

// Scores far beyond exp's range: the largest is subtracted first.
TEST_P(Attention, LargeScores) {
  const AttentionShape s = Shape({1, 40, 1, 1, 16});
  Operand q = Random({40, 16}, 30), k = Random({40, 16}, 30), v = Random({40, 16}), o = Poison({40, 16}), lse = Poison({1, 1, 40});
  Run([&](Device* d, const View& on) { return d->AttentionForward(s, on(q), on(k), on(v), on(o), on(lse)); });
  ExpectClose("o", o, 2e-3);   // scores of 1e3 carry 1e-4 of rounding each
  ExpectClose("lse", lse, 2e-6);
}

TEST_P(Attention, RefusesHeadsThatDoNotShareEvenly) {
  AttentionShape s = Shape({1, 2, 4, 2, 2});
  s.kv_heads = 3;
  Operand q = Random({2, 8}), k = Random({2, 6}), o = Poison({2, 8}), lse = Poison({1, 4, 2});
  ExpectRefused([&](Device* d, const View& on) { return d->AttentionForward(s, on(q), on(k), on(k), on(o), on(lse)); }, {"heads 4", "kv_heads 3"});
}

}  // namespace
}  // namespace moe::testing
