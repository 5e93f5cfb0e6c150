// Rows of ranks with unequal shares, some empty: gathered in rank order, reduced in rank order.
#include "core/moe/row_exchange.h"

#include <cmath>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "transport/inproc/inproc.h"

namespace moe {
namespace {

constexpr int64_t kWidth = 3;

// Runs `f` on every rank of a group; the first error.
absl::Status OnRanks(int64_t ranks, const std::function<absl::Status(Communicator*)>& f) {
  const auto world = std::make_shared<InprocWorld>(ranks);
  std::vector<absl::Status> results(ranks);
  std::vector<int64_t> members(ranks);
  std::iota(members.begin(), members.end(), 0);
  const auto body = [&](int64_t rank) -> absl::Status {
    MOE_ASSIGN_OR_RETURN(const auto transport, MakeInprocTransport(world, rank));
    MOE_ASSIGN_OR_RETURN(const auto group, transport->CreateGroup(1, members));
    MOE_RETURN_IF_ERROR(f(group.get()));
    return transport->Shutdown();
  };
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < ranks; ++r) threads.emplace_back([&, r] { results[r] = body(r); });
  for (std::thread& t : threads) t.join();
  for (const absl::Status& s : results) MOE_RETURN_IF_ERROR(s);
  return absl::OkStatus();
}

int64_t Sum(const std::vector<int64_t>& v) { return std::accumulate(v.begin(), v.end(), int64_t{0}); }

class RowExchangeTest : public ::testing::TestWithParam<std::vector<int64_t>> {};

TEST_P(RowExchangeTest, GathersInRankOrder) {
  const std::vector<int64_t> rows = GetParam();
  const auto run = [&](Communicator* group) -> absl::Status {
    const auto device = MakeReferenceDevice();
    Arena arena(device.get());
    const int64_t self = group->rank();
    const int64_t first = std::accumulate(rows.begin(), rows.begin() + self, int64_t{0}) * kWidth;
    MOE_ASSIGN_OR_RETURN(const TensorView local, arena.Make(DType::kI32, {rows[self], kWidth}));
    MOE_ASSIGN_OR_RETURN(const TensorView all, arena.Make(DType::kI32, {Sum(rows), kWidth}));
    for (int64_t i = 0; i < local.size(); ++i) local.as<int32_t>()[i] = static_cast<int32_t>(first + i);
    MOE_RETURN_IF_ERROR(GatherRows(device.get(), group, local, rows, all, "test"));
    for (int64_t i = 0; i < all.size(); ++i)
      if (all.as<int32_t>()[i] != i) return Internal("element ", i, " is ", all.as<int32_t>()[i]);
    return absl::OkStatus();
  };
  const absl::Status s = OnRanks(static_cast<int64_t>(rows.size()), run);
  EXPECT_TRUE(s.ok()) << s;
}

// Partial results whose float32 sum depends on the order.
float PartialValue(int64_t rank, int64_t i) { return rank == 0 ? 1e8f : rank == 1 ? 3.0f + static_cast<float>(i) : rank == 2 ? -1e8f : 0.25f; }

TEST_P(RowExchangeTest, ReducesInRankOrderAndGivesTheScratchBack) {
  const std::vector<int64_t> rows = GetParam();
  const int64_t ranks = static_cast<int64_t>(rows.size());
  const auto run = [&](Communicator* group) -> absl::Status {
    const auto device = MakeReferenceDevice();
    Arena arena(device.get());
    const int64_t self = group->rank(), first = std::accumulate(rows.begin(), rows.begin() + self, int64_t{0}) * kWidth;
    for (bool accumulate : {false, true}) {
      MOE_ASSIGN_OR_RETURN(const TensorView partial, arena.Make(DType::kF32, {Sum(rows), kWidth}));
      MOE_ASSIGN_OR_RETURN(const TensorView local, arena.Make(DType::kF32, {rows[self], kWidth}));
      for (int64_t i = 0; i < partial.size(); ++i) partial.as<float>()[i] = PartialValue(self, i);
      MOE_RETURN_IF_ERROR(device->Fill(local, accumulate ? 0.5 : NAN));
      const Arena::Mark before = arena.Position();
      MOE_RETURN_IF_ERROR(ReduceRows(device.get(), &arena, group, partial, rows, local, accumulate, "test"));
      const Arena::Mark after = arena.Position();
      if (after.chunk != before.chunk || after.used != before.used) return Internal("scratch stays");
      for (int64_t i = 0; i < local.size(); ++i) {
        float want = PartialValue(0, first + i);
        for (int64_t r = 1; r < ranks; ++r) want += PartialValue(r, first + i);
        if (accumulate) want += 0.5f;
        if (local.as<float>()[i] != want) return Internal("element ", i, " is ", local.as<float>()[i], ", expected ", want);
      }
    }
    return absl::OkStatus();
  };
  const absl::Status s = OnRanks(ranks, run);
  EXPECT_TRUE(s.ok()) << s;
}

INSTANTIATE_TEST_SUITE_P(Shares, RowExchangeTest,
                         ::testing::Values(std::vector<int64_t>{2, 1}, std::vector<int64_t>{0, 5}, std::vector<int64_t>{0, 0, 0}, std::vector<int64_t>{3, 0, 7, 1}));

TEST(RowExchangeAloneTest, WithoutAGroupRowsAreTheirOwn) {
  const auto device = MakeReferenceDevice();
  std::vector<double> in = {1, 2, 3, 4, 5, 6}, out(6, 0.0);
  const TensorView x(in.data(), DType::kF64, {2, kWidth}), y(out.data(), DType::kF64, {2, kWidth});
  Arena arena(device.get());
  const int64_t rows[1] = {2};
  ASSERT_TRUE(GatherRows(device.get(), nullptr, x, rows, y, "test").ok());
  EXPECT_EQ(out, in);
  ASSERT_TRUE(ReduceRows(device.get(), &arena, nullptr, x, rows, y, true, "test").ok());
  EXPECT_EQ(out, (std::vector<double>{2, 4, 6, 8, 10, 12}));
  ASSERT_TRUE(ReduceRows(device.get(), &arena, nullptr, x, rows, y, false, "test").ok());
  EXPECT_EQ(out, in);
  const int64_t other[1] = {3};
  EXPECT_NE(GatherRows(device.get(), nullptr, x, other, y, "test").message().find("3 rows"), absl::string_view::npos);
}

}  // namespace
}  // namespace moe
