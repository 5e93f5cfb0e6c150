#include "core/plan/classes.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace moe {
namespace {

World Make(int64_t ranks, const MeshSizes& sizes) {
  config::Config c;
  c.mutable_model()->set_num_layers(2 * sizes.pp);
  const auto mesh = Mesh::Make(ranks, sizes);
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  auto world = MakeWorld(c, *mesh, {{ScheduleKind::kOneFOneB, sizes.pp, 1, 2}, false, false}, 0);
  EXPECT_TRUE(world.ok()) << world.status();
  return *std::move(world);
}

// What makes one rank stand for its class: every rank of it sees the same classes in each of its groups.
void ExpectEquitable(const World& w) {
  const Classes classes(w);
  for (int64_t r = 0; r < w.mesh.world_size(); ++r) {
    for (GroupKind kind : kGroupKinds) {
      std::vector<int64_t> seen, first;
      for (int64_t m : w.Group(kind, r)) seen.push_back(classes.of(m));
      for (int64_t m : w.Group(kind, classes.first_rank(classes.of(r)))) first.push_back(classes.of(m));
      std::sort(seen.begin(), seen.end());
      std::sort(first.begin(), first.end());
      ASSERT_EQ(seen, first) << "rank " << r << " " << Name(kind);
      seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
      ASSERT_EQ(seen, classes.with(classes.of(r), kind));
    }
    for (int64_t peer : w.Group(GroupKind::kPp, r)) ASSERT_EQ(classes.at_stage(classes.of(r), w.mesh.coordinate(peer, Axis::kPp)), classes.of(peer));
  }
}

TEST(Classes, AStageIsOneClass) {
  for (const MeshSizes& s : {MeshSizes{2, 3, 4, 2, 1, 6}, MeshSizes{1, 1, 24, 2, 4, 2}, MeshSizes{4, 1, 3, 4, 3, 4}}) {
    const World w = Make(48, s);
    EXPECT_EQ(Classes(w).count(), s.pp);
    ExpectEquitable(w);
  }
}

TEST(Classes, OneDeviatingRankSplitsThem) {
  for (const MeshSizes& s : {MeshSizes{2, 3, 4, 2, 1, 6}, MeshSizes{1, 1, 24, 2, 4, 2}, MeshSizes{4, 1, 3, 4, 3, 4}}) {
    for (int64_t rank : {0, 13, 47}) {
      World w = Make(48, s);
      w.own[rank] = w.ProgramOf(rank);
      const Classes classes(w);
      ExpectEquitable(w);
      EXPECT_EQ(std::count_if(w.own.begin(), w.own.end(), [&](const auto& o) { return classes.first_rank(classes.of(o.first)) == o.first; }), 1);
      EXPECT_GT(classes.count(), s.pp);
      EXPECT_LE(classes.count(), s.tp == 4 ? 48 : 40);   // tp 4 against etp 3: nothing stays alike
    }
  }
}

TEST(Classes, AChangedGroupSplitsThem) {
  World w = Make(48, {2, 3, 4, 2, 1, 6});
  w.changes.push_back({GroupKind::kEp, {0, 1, 2, 3, 4, 5, 24, 25, 26, 27, 28, 29}});
  ExpectEquitable(w);
  EXPECT_GT(Classes(w).count(), 2);
}

}  // namespace
}  // namespace moe
