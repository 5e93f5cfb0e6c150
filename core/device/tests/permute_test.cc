// Rows to experts' order and back, with their gradients.
#include <algorithm>
#include <numeric>

#include "core/device/tests/harness.h"

namespace moe::testing {
namespace {

class Permute : public DeviceTest {
 protected:
  // pos_TK of a routing with dropped slots: the others are a random permutation of 0 .. N-1. N comes back in *n.
  std::vector<int64_t> Positions(int64_t T, int64_t K, bool with_dropped, int64_t* n) {
    std::vector<int64_t> pos(T * K, -1), slots;
    for (int64_t i = 0; i < T * K; ++i)
      if (!with_dropped || RandomInts(1, 0, 4)[0] != 0) slots.push_back(i);
    *n = static_cast<int64_t>(slots.size());
    for (int64_t i = *n; i > 1; --i) std::swap(slots[i - 1], slots[RandomInts(1, 0, i)[0]]);
    for (int64_t i = 0; i < *n; ++i) pos[slots[i]] = i;
    return pos;
  }
};
MOE_INSTANTIATE_DEVICE_TEST(Permute);

TEST_P(Permute, GatherRows) {
  ForShapes(OddSizes(), {1, 3, 8, 17, 64, 130}, [&](int64_t N, int64_t D) {
    Operand x = Random({13, D}), index = Ints({N}, RandomInts(N, -1, 13)), y = Poison({N, D});
    Run([&](Device* d, const View& on) { return d->GatherRows(on(x), on(index), on(y)); });
    ExpectEqual("y", y);
  });
}

TEST_P(Permute, GatherOnlyZeroRowsOfNothing) {
  Operand x = Random({0, 6}), index = Ints({3}, {-1, -1, -1}), y = Poison({3, 6});
  Run([&](Device* d, const View& on) { return d->GatherRows(on(x), on(index), on(y)); });
  ExpectEqual("y", y);
}

TEST_P(Permute, CombineAndBackward) {
  for (int64_t K : {1, 2, 3, 8}) {
    SCOPED_TRACE(absl::StrCat("K ", K));
    ForShapes({0, 1, 2, 7, 17, 33, 100}, {1, 3, 8, 17, 64, 130}, [&](int64_t T, int64_t D) {
      int64_t N = 0;
      const std::vector<int64_t> positions = Positions(T, K, true, &N);
      Operand rows = Random({N, D}), pos = Ints({T, K}, positions), w = Random({T, K}), y = Poison({T, D});
      Run([&](Device* d, const View& on) { return d->Combine(on(rows), on(pos), on(w), on(y), false); });
      ExpectClose("y", y, 1e-6);
      Run([&](Device* d, const View& on) { return d->Combine(on(rows), on(pos), on(w), on(y), true); });
      ExpectClose("y accumulated", y, 1e-6);
      Run([&](Device* d, const View& on) { return d->Combine(on(rows), on(pos), TensorView(), on(y), false); });
      ExpectClose("y without weights", y, 1e-6);
      Run([&](Device* d, const View& on) { return d->Combine(on(rows), on(pos), TensorView(), on(y), true); });
      ExpectClose("y without weights, accumulated", y, 1e-6);
      Operand dy = Random({T, D}), drows = Poison({N, D}), dw = Poison({T, K});
      Run([&](Device* d, const View& on) { return d->CombineBackward(on(rows), on(pos), on(w), on(dy), on(drows), on(dw)); });
      ExpectClose("drows", drows, 3e-7);
      ExpectClose("dw", dw, 5e-6);
    });
  }
}

TEST_P(Permute, CombineWithoutDroppedSlots) {
  int64_t N = 0;
  const std::vector<int64_t> positions = Positions(257, 2, false, &N);
  ASSERT_EQ(N, 514);
  Operand rows = Random({N, 33}), pos = Ints({257, 2}, positions), w = Random({257, 2}), y = Poison({257, 33});
  Run([&](Device* d, const View& on) { return d->Combine(on(rows), on(pos), on(w), on(y), false); });
  ExpectClose("y", y, 1e-6);
}

// What a dropped slot points at must not matter: its weight may be anything.
TEST_P(Permute, DroppedSlotsAreNotRead) {
  Operand rows = Values({1, 2}, {1, 2}), pos = Ints({2, 2}, {-1, 0, -1, -1}), w = Values({2, 2}, {NAN, 3, NAN, NAN}), y = Poison({2, 2});
  Run([&](Device* d, const View& on) { return d->Combine(on(rows), on(pos), on(w), on(y), false); });
  EXPECT_EQ(Got(y), (std::vector<double>{3, 6, 0, 0}));
  ExpectEqual("y", y);
  Operand dy = Values({2, 2}, {1, 1, NAN, NAN}), drows = Poison({1, 2}), dw = Poison({2, 2});
  Run([&](Device* d, const View& on) { return d->CombineBackward(on(rows), on(pos), on(w), on(dy), on(drows), on(dw)); });
  EXPECT_EQ(Got(dw), (std::vector<double>{0, 3, 0, 0}));
  EXPECT_EQ(Got(drows), (std::vector<double>{3, 3}));
  ExpectEqual("dw", dw);
}

TEST_P(Permute, IndicesOutsideAreRefused) {
  for (int64_t bad : {-2, 5}) {
    Operand x = Random({5, 3}), index = Ints({4}, {0, bad, 4, -1}), pos = Ints({2, 2}, {0, bad, 4, -1}), y = Random({4, 3}), z = Random({2, 3}), w = Random({2, 2});
    const std::vector<std::string> parts = {"position 1", absl::StrCat("is ", bad), "[-1, 5)"};
    ExpectRefused([&](Device* d, const View& on) { return d->GatherRows(on(x), on(index), on(y)); }, parts);
    ExpectRefused([&](Device* d, const View& on) { return d->Combine(on(x), on(pos), on(w), on(z), false); }, parts);
    ExpectRefused([&](Device* d, const View& on) { return d->CombineBackward(on(x), on(pos), on(w), on(z), on(x), on(w)); }, parts);
  }
}

}  // namespace
}  // namespace moe::testing
