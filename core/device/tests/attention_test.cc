// Causal attention of grouped-query heads.
#include <algorithm>
#include <cmath>
#include <cstring>

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

// ---- a part of the queries
// Ways to cut a sequence: first and last query alone, halves, uneven parts, and the edges of the kernels' tiles of 64.
std::vector<std::vector<int64_t>> Cuts(int64_t seq) {
  std::vector<std::vector<int64_t>> all = {{0, seq}, {0, 1, seq - 1, seq}, {0, seq / 2, seq}, {0, seq / 5, seq / 3, 3 * seq / 4, seq}, {0, 63, 64, 65, 126, 200, seq}};
  for (std::vector<int64_t>& cuts : all) {
    for (int64_t& c : cuts) c = std::min(c, seq);
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  }
  return all;
}

// Rows begin .. end of every one of `groups` runs of `per_group` rows, row-major.
std::vector<double> RowsOf(const std::vector<double>& whole, int64_t groups, int64_t per_group, int64_t begin, int64_t end, int64_t width) {
  std::vector<double> part;
  for (int64_t g = 0; g < groups; ++g) part.insert(part.end(), whole.begin() + (g * per_group + begin) * width, whole.begin() + (g * per_group + end) * width);
  return part;
}

void ExpectSameValues(const char* name, const std::vector<double>& part, const std::vector<double>& of_whole) {
  ASSERT_EQ(part.size(), of_whole.size()) << name;
  for (size_t i = 0; i < part.size(); ++i) ASSERT_EQ(std::memcmp(&part[i], &of_whole[i], sizeof(double)), 0) << name << "[" << i << "] of the part is " << part[i] << ", of the whole " << of_whole[i];
}

// The parts of a sequence give the bits of the whole for the queries, and gradients of the keys that add up to the whole's.
TEST_P(Attention, PartsOfTheQueriesGiveTheWhole) {
  int n = 0;
  for (const Size& z : kSizes) {
    const AttentionShape s = Shape(z);
    const int64_t B = z.batch, S = z.seq, T = B * S, qd = z.heads * z.head_dim, kd = z.kv_heads * z.head_dim;
    if (S == 0) continue;
    pad_ = ++n % 3;
    Operand q = Random({T, qd}), k = Random({T, kd}), v = Random({T, kd}), do_ = Random({T, qd}), o = Poison({T, qd}), lse = Poison({B, z.heads, S});
    Operand dq = Poison({T, qd}), dk = Poison({T, kd}), dv = Poison({T, kd});
    Run([&](Device* d, const View& on) { return d->AttentionForward(s, on(q), on(k), on(v), on(o), on(lse)); });
    Run([&](Device* d, const View& on) { return d->AttentionBackward(s, on(q), on(k), on(v), on(o), on(lse), on(do_), on(dq), on(dk), on(dv)); });
    for (const std::vector<int64_t>& cuts : Cuts(S)) {
      std::vector<std::vector<double>> dk_sum(num_devices(), std::vector<double>(T * kd)), dv_sum = dk_sum;
      for (size_t c = 0; c + 1 < cuts.size(); ++c) {
        const int64_t begin = cuts[c], end = cuts[c + 1], N = B * (end - begin);
        SCOPED_TRACE(absl::StrCat("batch ", B, " seq ", S, " heads ", z.heads, "/", z.kv_heads, " head_dim ", z.head_dim, " queries ", begin, "..", end, " padding ", pad_, " seed ", seed_));
        AttentionShape part = s;
        part.query_begin = begin;
        part.query_seq = end - begin;
        Operand pq = Values({N, qd}, RowsOf(Got(q), B, S, begin, end, qd)), pdo = Values({N, qd}, RowsOf(Got(do_), B, S, begin, end, qd));
        Operand po = Poison({N, qd}), plse = Poison({B, z.heads, end - begin}), pdq = Poison({N, qd}), pdk = Poison({T, kd}), pdv = Poison({T, kd});
        Run([&](Device* d, const View& on) { return d->AttentionForward(part, on(pq), on(k), on(v), on(po), on(plse)); });
        Run([&](Device* d, const View& on) { return d->AttentionBackward(part, on(pq), on(k), on(v), on(po), on(plse), on(pdo), on(pdq), on(pdk), on(pdv)); });
        ExpectClose("o", po, 5e-6);
        ExpectClose("lse", plse, 2e-6);
        ExpectClose("dq", pdq, 1e-5);
        ExpectClose("dk", pdk, 1e-5);
        ExpectClose("dv", pdv, 1e-5);
        for (size_t i = 0; i < num_devices(); ++i) {
          ExpectSameValues("o", Got(po, i), RowsOf(Got(o, i), B, S, begin, end, qd));
          ExpectSameValues("lse", Got(plse, i), RowsOf(Got(lse, i), B * z.heads, S, begin, end, 1));
          ExpectSameValues("dq", Got(pdq, i), RowsOf(Got(dq, i), B, S, begin, end, qd));
          // Keys that no query of the part reads.
          const std::vector<double> none(B * (S - end) * kd);
          ExpectSameValues("dk", RowsOf(Got(pdk, i), B, S, end, S, kd), none);
          ExpectSameValues("dv", RowsOf(Got(pdv, i), B, S, end, S, kd), none);
          const std::vector<double> got_dk = Got(pdk, i), got_dv = Got(pdv, i);
          for (int64_t at = 0; at < T * kd; ++at) dk_sum[i][at] += got_dk[at], dv_sum[i][at] += got_dv[at];
        }
        if (HasFatalFailure()) return;
      }
      for (size_t i = 0; i < num_devices(); ++i) {
        const double tolerance = dtype() == DType::kF64 || i == 0 ? 1e-12 : 1e-5;
        const std::vector<double> whole_dk = Got(dk, i), whole_dv = Got(dv, i);
        for (int64_t at = 0; at < T * kd; ++at) {
          ASSERT_NEAR(dk_sum[i][at], whole_dk[at], tolerance * (1 + std::abs(whole_dk[at]))) << "dk[" << at << "] of device " << i << ", seq " << S;
          ASSERT_NEAR(dv_sum[i][at], whole_dv[at], tolerance * (1 + std::abs(whole_dv[at]))) << "dv[" << at << "] of device " << i << ", seq " << S;
        }
      }
    }
  }
}

TEST_P(Attention, RefusesQueriesOutsideTheSequence) {
  struct Case { int64_t query_seq, query_begin; std::vector<std::string> parts; };
  const std::vector<Case> cases = {{-1, 0, {"query_seq -1", ">= 0"}},       {2, -1, {"query_begin -1", ">= 0"}},        {0, 1, {"query_begin is 1", "query_seq 0", "all 4"}},
                                   {2, 3, {"query_begin 3 + query_seq 2", "seq 4"}}, {5, 0, {"query_begin 0 + query_seq 5", "seq 4"}}, {1, INT64_MAX, {"query_begin 9223372036854775807", "seq 4"}}};
  Operand q = Random({2, 4}), k = Random({4, 4}), o = Poison({2, 4}), lse = Poison({1, 2, 2}), dk = Poison({4, 4});
  for (const Case& c : cases) {
    AttentionShape s = Shape({1, 4, 2, 2, 2});
    s.query_seq = c.query_seq;
    s.query_begin = c.query_begin;
    ExpectRefused([&](Device* d, const View& on) { return d->AttentionForward(s, on(q), on(k), on(k), on(o), on(lse)); }, c.parts);
    ExpectRefused([&](Device* d, const View& on) { return d->AttentionBackward(s, on(q), on(k), on(k), on(o), on(lse), on(q), on(o), on(dk), on(dk)); }, c.parts);
  }
}

// q, o, do, dq and lse have the rows of the part, k, v, dk and dv those of the sequence.
TEST_P(Attention, RefusesRowsOfTheWholeForAPart) {
  AttentionShape s = Shape({2, 4, 2, 2, 2});
  s.query_seq = 3;
  s.query_begin = 1;
  Operand part = Random({6, 4}), whole = Random({8, 4}), lse = Random({2, 2, 3}), whole_lse = Random({2, 2, 4});
  const auto forward = [&](const Operand& q, const Operand& k, const Operand& o, const Operand& l) {
    return [&](Device* d, const View& on) { return d->AttentionForward(s, on(q), on(k), on(k), on(o), on(l)); };
  };
  ExpectRefused(forward(whole, whole, part, lse), {"q is float32[8,4]", "float32[6,4]"});
  ExpectRefused(forward(part, part, part, lse), {"k is float32[6,4]", "float32[8,4]"});
  ExpectRefused(forward(part, whole, whole, lse), {"o is float32[8,4]", "float32[6,4]"});
  ExpectRefused(forward(part, whole, part, whole_lse), {"lse_BHS is float32[2,2,4]", "float32[2,2,3]"});
  const auto backward = [&](const Operand& d_o, const Operand& dq, const Operand& dk) {
    return [&](Device* d, const View& on) { return d->AttentionBackward(s, on(part), on(whole), on(whole), on(part), on(lse), on(d_o), on(dq), on(dk), on(whole)); };
  };
  ExpectRefused(backward(whole, part, whole), {"do is float32[8,4]", "float32[6,4]"});
  ExpectRefused(backward(part, whole, whole), {"dq is float32[8,4]", "float32[6,4]"});
  ExpectRefused(backward(part, part, part), {"dk is float32[6,4]", "float32[8,4]"});
}

TEST_P(Attention, RefusesHeadsThatDoNotShareEvenly) {
  AttentionShape s = Shape({1, 2, 4, 2, 2});
  s.kv_heads = 3;
  Operand q = Random({2, 8}), k = Random({2, 6}), o = Poison({2, 8}), lse = Poison({1, 4, 2});
  ExpectRefused([&](Device* d, const View& on) { return d->AttentionForward(s, on(q), on(k), on(k), on(o), on(lse)); }, {"heads 4", "kv_heads 3"});
}

}  // namespace
}  // namespace moe::testing
