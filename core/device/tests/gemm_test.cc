// Matrix products, plain and grouped, and grouped biases.
#include <numeric>

#include "core/device/tests/harness.h"

namespace moe::testing {
namespace {

class Gemm : public DeviceTest {
 protected:
  // Groups of uneven size: `kind` 0 random with empty ones, 1 everything in one group, 2 all even, 3 all but the first empty.
  std::vector<int64_t> Offsets(int64_t R, int64_t groups, int kind) {
    std::vector<int64_t> at(groups + 1, 0);
    at[groups] = R;
    for (int64_t g = 1; g < groups; ++g) at[g] = kind == 0 ? RandomInts(1, 0, R + 1)[0] : kind == 1 ? (g > groups / 2 ? R : 0) : kind == 2 ? R * g / groups : R;
    std::sort(at.begin(), at.end());
    return at;
  }
};
MOE_INSTANTIATE_DEVICE_TEST(Gemm);

TEST_P(Gemm, AllFormsOverOddSizes) {
  const std::vector<int64_t> sizes = {0, 1, 2, 3, 7, 16, 17, 33, 100};
  int64_t i = 0;
  for (int64_t M : sizes) {
    for (int64_t N : {1, 3, 16, 33, 65}) {
      const int64_t K = sizes[++i % sizes.size()];
      for (int form = 0; form < 4; ++form) {
        const bool ta = form & 1, tb = form & 2;
        pad_ = i % 2 ? 0 : 5;
        SCOPED_TRACE(absl::StrCat("M ", M, " N ", N, " K ", K, " trans ", ta, tb, " seed ", seed_));
        Operand a = Random(ta ? std::vector<int64_t>{K, M} : std::vector<int64_t>{M, K}), b = Random(tb ? std::vector<int64_t>{N, K} : std::vector<int64_t>{K, N});
        Operand c = Poison({M, N});
        Run([&](Device* d, const View& on) { return d->Gemm(ta, tb, 1, on(a), on(b), 0, on(c)); });
        ExpectClose("c", c, 1e-5);
        Run([&](Device* d, const View& on) { return d->Gemm(ta, tb, 0.5, on(a), on(b), 1, on(c)); });
        ExpectClose("c", c, 1e-5);
        Run([&](Device* d, const View& on) { return d->Gemm(ta, tb, -1.25, on(a), on(b), 0.5, on(c)); });
        ExpectClose("c", c, 1e-5);
      }
    }
  }
}

TEST_P(Gemm, LongerThanABlock) {
  for (const auto& [M, N, K] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{{257, 130, 300}, {1, 300, 500}, {513, 8, 64}, {64, 257, 8}}) {
    for (int form = 0; form < 4; ++form) {
      const bool ta = form & 1, tb = form & 2;
      SCOPED_TRACE(absl::StrCat("M ", M, " N ", N, " K ", K, " trans ", ta, tb, " seed ", seed_));
      Operand a = Random(ta ? std::vector<int64_t>{K, M} : std::vector<int64_t>{M, K}), b = Random(tb ? std::vector<int64_t>{N, K} : std::vector<int64_t>{K, N});
      Operand c = Poison({M, N});
      Run([&](Device* d, const View& on) { return d->Gemm(ta, tb, 1, on(a), on(b), 0, on(c)); });
      ExpectClose("c", c, 3e-5);
    }
  }
}

TEST_P(Gemm, GroupedForms) {
  int64_t i = 0;
  for (int64_t R : {0, 1, 2, 7, 33, 100, 257}) {
    for (int64_t groups : {1, 2, 5, 8}) {
      for (int kind = 0; kind < 4; ++kind) {
        const int64_t I = std::vector<int64_t>{1, 7, 16, 33}[++i % 4], O = std::vector<int64_t>{3, 8, 17, 40}[i / 4 % 4];
        pad_ = i % 2 ? 0 : 3;
        const std::vector<int64_t> offsets = Offsets(R, groups, kind);
        SCOPED_TRACE(absl::StrCat("R ", R, " groups ", groups, " kind ", kind, " I ", I, " O ", O, " padding ", pad_, " seed ", seed_));
        Operand x = Random({R, I}), w = Random({groups, O, I}), dy = Random({R, O}), y = Poison({R, O}), dx = Poison({R, I}), dw = Poison({groups, O, I});
        for (double beta : {0.0, 1.0}) {
          Run([&](Device* d, const View& on) { return d->GroupedGemm(GroupedForm::kForward, on(x), on(w), offsets, beta, on(y)); });
          ExpectClose("y", y, 1e-5);
          Run([&](Device* d, const View& on) { return d->GroupedGemm(GroupedForm::kInputGrad, on(dy), on(w), offsets, beta, on(dx)); });
          ExpectClose("dx", dx, 1e-5);
          Run([&](Device* d, const View& on) { return d->GroupedGemm(GroupedForm::kWeightGrad, on(dy), on(x), offsets, beta, on(dw)); });
          ExpectClose("dw", dw, 3e-5);
        }
      }
    }
  }
}

TEST_P(Gemm, GroupedBias) {
  for (int64_t R : OddSizes()) {
    for (int64_t O : {1, 8, 17, 40}) {
      for (int kind = 0; kind < 4; ++kind) {
        pad_ = O % 2 ? 0 : 3;
        const std::vector<int64_t> offsets = Offsets(R, 5, kind);
        SCOPED_TRACE(absl::StrCat("R ", R, " kind ", kind, " O ", O, " padding ", pad_, " seed ", seed_));
        Operand b = Random({5, O}), y = Random({R, O}), db = Random({5, O});
        Run([&](Device* d, const View& on) { return d->GroupedBias(on(b), offsets, on(y)); });
        ExpectClose("y", y, 3e-7);
        Run([&](Device* d, const View& on) { return d->GroupedBiasGrad(on(y), offsets, on(db)); });
        ExpectClose("db", db, 1e-5);
      }
    }
  }
}

}  // namespace
}  // namespace moe::testing
