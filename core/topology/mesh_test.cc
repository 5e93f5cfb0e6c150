#include "core/topology/mesh.h"

#include <set>

#include "gtest/gtest.h"

namespace moe {
namespace {

using Groups = std::vector<std::vector<int64_t>>;

Mesh Make(int64_t world, MeshSizes s) {
  auto m = Mesh::Make(world, s);
  EXPECT_TRUE(m.ok()) << m.status();
  return *m;
}

MeshSizes Sizes(int64_t tp, int64_t cp, int64_t pp, int64_t dp, int64_t etp, int64_t ep) { return {tp, cp, dp, pp, etp, ep}; }

TEST(MeshTest, EightWayExpertsOverTensorAndData) {
  const Mesh m = Make(16, Sizes(2, 1, 2, 4, 1, 8));
  EXPECT_EQ(m.Groups(GroupKind::kEp), (Groups{{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14, 15}}));
  EXPECT_EQ(m.size(Axis::kEdp), 1);
  EXPECT_EQ(m.Groups(GroupKind::kPp).front(), (std::vector<int64_t>{0, 8}));
  EXPECT_EQ(m.Groups(GroupKind::kPp).back(), (std::vector<int64_t>{7, 15}));
}

TEST(MeshTest, ContextAndExpertData) {
  const Mesh m = Make(16, Sizes(2, 2, 2, 2, 1, 4));
  EXPECT_EQ(m.Groups(GroupKind::kEp), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}));
  const Groups edp = m.Groups(GroupKind::kEdp);
  EXPECT_EQ(edp[0], (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(edp[3], (std::vector<int64_t>{3, 7}));
  EXPECT_EQ(edp[4], (std::vector<int64_t>{8, 12}));
  EXPECT_EQ(m.Group(GroupKind::kDpCp, 0), (std::vector<int64_t>{0, 2, 4, 6}));
}

TEST(MeshTest, ExpertTensorParallel) {
  const Mesh m = Make(16, Sizes(2, 1, 2, 4, 2, 2));
  const Groups ep = m.Groups(GroupKind::kEp), edp = m.Groups(GroupKind::kEdp);
  EXPECT_EQ(ep[0], (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(ep[1], (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(ep[2], (std::vector<int64_t>{4, 6}));
  EXPECT_EQ(edp[0], (std::vector<int64_t>{0, 4}));
}

// H2: the layout that made experts wait across pipeline stages.
TEST(MeshTest, RefusesExpertsAcrossStages) {
  const auto m = Mesh::Make(16, Sizes(2, 1, 2, 4, 1, 4), /*pp_slowest=*/false);
  ASSERT_FALSE(m.ok());
  for (const char* part : {"[0,2]", "[0,4]", "pp", "mesh.ep", "cross"}) EXPECT_NE(m.status().message().find(part), absl::string_view::npos) << m.status();
  EXPECT_TRUE(Mesh::Make(16, Sizes(2, 1, 2, 4, 1, 4)).ok());
}

// Every factorisation of 1..16: groups of each kind part the world, experts stay inside their stage, coordinates and members
// agree.
TEST(MeshTest, PropertiesOfAllFactorisations) {
  int checked = 0;
  for (int64_t world = 1; world <= 16; ++world)
    for (int64_t pp = 1; pp <= world; ++pp) for (int64_t tp = 1; tp <= world; ++tp) for (int64_t cp = 1; cp <= world; ++cp) {
      if (world % (pp * tp * cp) != 0) continue;
      for (int64_t etp = 1; etp <= world; ++etp) for (int64_t ep = 1; ep <= world; ++ep) {
        if (world % (pp * etp * ep) != 0) continue;
        const Mesh m = Make(world, Sizes(tp, cp, pp, world / (pp * tp * cp), etp, ep));
        ++checked;
        std::set<int64_t> ids;
        size_t number = 0;
        for (GroupKind kind : kGroupKinds) {
          std::set<int64_t> seen;
          for (const auto& g : m.Groups(kind)) {
            ++number;
            ids.insert(m.GroupId(kind, g.front()));
            for (int64_t r : g) {
              EXPECT_TRUE(seen.insert(r).second);
              EXPECT_EQ(m.Group(kind, r), g);
              EXPECT_EQ(m.GroupId(kind, r), m.GroupId(kind, g.front()));
              if (kind != GroupKind::kPp) { EXPECT_EQ(m.coordinate(r, Axis::kPp), m.coordinate(g.front(), Axis::kPp)); }
            }
          }
          EXPECT_EQ(static_cast<int64_t>(seen.size()), world);
        }
        EXPECT_EQ(ids.size(), number);
        EXPECT_EQ(static_cast<int64_t>(m.Group(GroupKind::kEp, world - 1).size()), ep);
      }
    }
  EXPECT_GT(checked, 500);
}

TEST(MeshTest, FillsWhatIsZero) {
  config::MeshConfig c;
  EXPECT_EQ(MeshFromConfig(4, c, 8)->size(Axis::kEp), 4);
  EXPECT_EQ(MeshFromConfig(6, c, 8)->size(Axis::kEp), 2);
  EXPECT_EQ(MeshFromConfig(6, c, 8)->size(Axis::kEdp), 3);
  EXPECT_EQ(MeshFromConfig(6, c, 8)->size(Axis::kDp), 6);
  c.set_pp(2);
  EXPECT_EQ(MeshFromConfig(8, c, 8)->size(Axis::kEp), 4);
}

TEST(MeshTest, MisuseNamesFieldAndRemedy) {
  config::MeshConfig c;
  c.set_dp(3);
  auto s = MeshFromConfig(4, c, 8).status();
  EXPECT_NE(s.message().find("mesh.dp=4"), absl::string_view::npos) << s;
  c.clear_dp();
  c.set_ep(3);
  s = MeshFromConfig(4, c, 8).status();
  EXPECT_NE(s.message().find("1, 2, 4"), absl::string_view::npos) << s;
  c.clear_ep();
  c.set_pp(3);
  EXPECT_FALSE(MeshFromConfig(4, c, 8).ok());
}

}  // namespace
}  // namespace moe
