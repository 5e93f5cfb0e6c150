#include "experts/partition/block_partition.h"

#include "gtest/gtest.h"

namespace moe {
namespace {

TEST(BlockPartitionTest, EqualBlocksInOrder) {
  const auto partition = MakeBlockPartition();
  EXPECT_EQ(partition->name(), "block");
  for (int64_t ep = 1; ep <= 6; ++ep) {
    for (int64_t each = 1; each <= 4; ++each) {
      auto p = partition->Place(ep * each, ep);
      ASSERT_TRUE(p.ok()) << p.status();
      EXPECT_EQ(p->ep(), ep);
      int64_t next = 0;
      for (int64_t r = 0; r < ep; ++r) {
        EXPECT_EQ(static_cast<int64_t>(p->experts_of(r).size()), each);
        for (int64_t g : p->experts_of(r)) {
          EXPECT_EQ(g, next++);
          EXPECT_EQ(p->owner(g), r);
          EXPECT_EQ(p->slot(g), g - r * each);
        }
      }
      EXPECT_EQ(next, ep * each);
    }
  }
}

// R12.
TEST(BlockPartitionTest, UnequalSharesAreRefusedWithTheNearestThatWork) {
  const auto message = [](int64_t experts, int64_t ep) {
    const auto s = MakeBlockPartition()->Place(experts, ep).status();
    EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument);
    return std::string(s.message());
  };
  const auto contains = [](const std::string& text, const std::string& part) { EXPECT_NE(text.find(part), std::string::npos) << text; };
  contains(message(63, 8), "model.num_global_experts is 63, not divisible by mesh.ep, which is 8");
  contains(message(63, 8), "Nearest mesh.ep: 7 or 9;");
  contains(message(63, 8), "nearest model.num_global_experts: 56 or 64");
  contains(message(8, 3), "Nearest mesh.ep: 2 or 4;");
  contains(message(2, 16), "Nearest mesh.ep: 2; nearest model.num_global_experts: 16");
  contains(message(8, 0), "mesh.ep is 0");
  contains(message(0, 1), "model.num_global_experts is 0");
}

}  // namespace
}  // namespace moe
