#include "core/topology/mesh.h"

#include <algorithm>
#include <limits>
#include <map>
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

// Every way to cut `world` along both maps.
std::vector<MeshSizes> AllSizes(int64_t world) {
  std::vector<MeshSizes> out;
  for (int64_t pp = 1; pp <= world; ++pp)
    for (int64_t tp = 1; tp <= world; ++tp)
      for (int64_t cp = 1; cp <= world; ++cp) {
        if (world % (pp * tp * cp) != 0) continue;
        for (int64_t etp = 1; etp <= world; ++etp)
          for (int64_t ep = 1; ep <= world; ++ep)
            if (world % (pp * etp * ep) == 0) out.push_back({tp, cp, world / (pp * tp * cp), pp, etp, ep});
      }
  return out;
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

// Refused exactly when the two maps disagree on who is in which stage.
TEST(MeshTest, PipelineBeforeDataIsRefusedOnlyWhereStagesDiffer) {
  EXPECT_TRUE(Mesh::Make(16, Sizes(2, 1, 2, 4, 1, 2), false).ok());    // both maps have pp at stride 2
  EXPECT_TRUE(Mesh::Make(16, Sizes(2, 1, 1, 8, 1, 4), false).ok());    // one stage
  const auto m = Mesh::Make(16, Sizes(2, 1, 2, 4, 1, 2), false);
  EXPECT_EQ(m->Group(GroupKind::kPp, 0), (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(m->Group(GroupKind::kDp, 0), (std::vector<int64_t>{0, 4, 8, 12}));
  int refused = 0;
  for (const auto& s : AllSizes(16)) refused += !Mesh::Make(16, s, false).ok();
  EXPECT_GT(refused, 10);
  for (const auto& s : AllSizes(16)) EXPECT_EQ(Mesh::Make(16, s, false).ok(), s.pp == 1 || s.tp * s.cp == s.etp * s.ep);
}

// rank = sum of index x stride, counted out here with nested loops, first axis innermost.
TEST(MeshTest, CoordinatesAreThoseOfNestedLoops) {
  for (const auto& s : AllSizes(16)) {
    const Mesh m = Make(16, s);
    int64_t rank = 0;
    for (int64_t pp = 0; pp < s.pp; ++pp) for (int64_t dp = 0; dp < s.dp; ++dp) for (int64_t cp = 0; cp < s.cp; ++cp) for (int64_t tp = 0; tp < s.tp; ++tp, ++rank) {
      EXPECT_EQ(m.coordinate(rank, Axis::kPp), pp);
      EXPECT_EQ(m.coordinate(rank, Axis::kDp), dp);
      EXPECT_EQ(m.coordinate(rank, Axis::kCp), cp);
      EXPECT_EQ(m.coordinate(rank, Axis::kTp), tp);
    }
    EXPECT_EQ(rank, 16);
    rank = 0;
    const int64_t edp_size = 16 / (s.pp * s.ep * s.etp);
    for (int64_t pp = 0; pp < s.pp; ++pp) for (int64_t edp = 0; edp < edp_size; ++edp) for (int64_t ep = 0; ep < s.ep; ++ep) for (int64_t etp = 0; etp < s.etp; ++etp, ++rank) {
      EXPECT_EQ(m.coordinate(rank, Axis::kPp), pp);
      EXPECT_EQ(m.coordinate(rank, Axis::kEdp), edp);
      EXPECT_EQ(m.coordinate(rank, Axis::kEp), ep);
      EXPECT_EQ(m.coordinate(rank, Axis::kEtp), etp);
    }
    EXPECT_EQ(rank, 16);
  }
}

// Every factorisation of 1..16: the groups of each kind partition the world and have the right size, a group holds exactly
// the ranks that agree on all other axes of its map, experts stay inside their stage, ids are unique.
TEST(MeshTest, PropertiesOfAllFactorisations) {
  const std::vector<Axis> attention = {Axis::kTp, Axis::kCp, Axis::kDp, Axis::kPp}, experts = {Axis::kEtp, Axis::kEp, Axis::kEdp, Axis::kPp};
  const std::map<GroupKind, std::pair<std::vector<Axis>, std::set<Axis>>> kinds = {
      {GroupKind::kTp, {attention, {Axis::kTp}}},   {GroupKind::kCp, {attention, {Axis::kCp}}}, {GroupKind::kDp, {attention, {Axis::kDp}}},
      {GroupKind::kPp, {attention, {Axis::kPp}}},   {GroupKind::kDpCp, {attention, {Axis::kDp, Axis::kCp}}},
      {GroupKind::kEtp, {experts, {Axis::kEtp}}},   {GroupKind::kEp, {experts, {Axis::kEp}}},   {GroupKind::kEdp, {experts, {Axis::kEdp}}},
      {GroupKind::kStage, {attention, {Axis::kTp, Axis::kCp, Axis::kDp}}},
      {GroupKind::kReplica, {attention, {Axis::kTp, Axis::kCp, Axis::kPp}}}, {GroupKind::kEnds, {attention, {Axis::kPp}}}};
  const std::set<GroupKind> crossing = {GroupKind::kPp, GroupKind::kReplica, GroupKind::kEnds};
  ASSERT_EQ(kinds.size(), kGroupKinds.size());
  int checked = 0;
  for (int64_t world = 1; world <= 16; ++world) {
    for (const auto& s : AllSizes(world)) {
      const Mesh m = Make(world, s);
      ++checked;
      std::set<int64_t> ids;
      std::map<GroupKind, std::set<int64_t>> seen;
      GroupKind last = kGroupKinds.front();
      for (const MeshGroup& g : m.AllGroups()) {
        const auto& [map, varied] = kinds.at(g.kind);
        ASSERT_GE(g.kind, last);
        last = g.kind;
        ASSERT_TRUE(ids.insert(g.id).second);
        int64_t size = 1;
        for (Axis a : varied) size *= m.size(a);
        if (g.kind == GroupKind::kEnds) {   // the two ends of a pipeline; who is between them is alone
          const int64_t stage = m.coordinate(g.members.front(), Axis::kPp), last_stage = m.size(Axis::kPp) - 1;
          size = last_stage > 0 && stage == 0 ? 2 : 1;
          if (size == 2) { ASSERT_EQ(m.coordinate(g.members.back(), Axis::kPp), last_stage); }
          else { ASSERT_TRUE(last_stage == 0 || (stage > 0 && stage < last_stage)); }
        }
        ASSERT_EQ(static_cast<int64_t>(g.members.size()), size);
        ASSERT_TRUE(std::is_sorted(g.members.begin(), g.members.end()));
        for (int64_t r : g.members) {
          ASSERT_TRUE(seen[g.kind].insert(r).second);
          ASSERT_EQ(m.Group(g.kind, r), g.members);
          ASSERT_EQ(m.GroupId(g.kind, r), g.id);
          ASSERT_EQ(m.GroupSize(g.kind, r), size);
          ASSERT_EQ(m.FirstMember(g.kind, r), g.members.front());
          ASSERT_EQ(g.members[m.GroupRank(g.kind, r)], r);
          for (Axis a : map)
            if (varied.count(a) == 0) { ASSERT_EQ(m.coordinate(r, a), m.coordinate(g.members.front(), a)); }
        }
        // Only what the pipeline is part of crosses stages.
        ASSERT_EQ(m.CheckWithinStage(g.members).ok(), crossing.count(g.kind) == 0 || g.members.size() == 1 || m.size(Axis::kPp) == 1);
      }
      for (GroupKind kind : kGroupKinds) ASSERT_EQ(static_cast<int64_t>(seen[kind].size()), world);
    }
  }
  EXPECT_GT(checked, 500);
}

TEST(MeshTest, EndsAndReplica) {
  const Mesh m = Make(16, Sizes(2, 1, 4, 2, 1, 4));
  EXPECT_EQ(m.Groups(GroupKind::kEnds), (Groups{{0, 12}, {1, 13}, {2, 14}, {3, 15}, {4}, {5}, {6}, {7}, {8}, {9}, {10}, {11}}));
  EXPECT_EQ(m.Groups(GroupKind::kReplica), (Groups{{0, 1, 4, 5, 8, 9, 12, 13}, {2, 3, 6, 7, 10, 11, 14, 15}}));
  EXPECT_EQ(Make(4, Sizes(2, 1, 1, 2, 1, 4)).Groups(GroupKind::kEnds), (Groups{{0}, {1}, {2}, {3}}));
}

// Large worlds cost no more than their groups: nothing here is quadratic.
TEST(MeshTest, ManyRanks) {
  const Mesh m = Make(65536, Sizes(8, 2, 16, 256, 1, 64));
  EXPECT_EQ(m.Group(GroupKind::kStage, 65535).size(), 4096u);
  EXPECT_EQ(m.Group(GroupKind::kEp, 65535).front(), 65536 - 64);
  EXPECT_EQ(m.Groups(GroupKind::kDpCp).size(), 128u);
}

// H2: a layer is given a group that is not of one stage.
TEST(MeshTest, GroupAcrossStagesIsRefused) {
  const Mesh m = Make(16, Sizes(2, 1, 2, 4, 1, 4));
  const std::vector<int64_t> good = {4, 5, 6, 7}, bad = {6, 7, 8, 9}, outside = {15, 16};
  EXPECT_TRUE(m.CheckWithinStage(good).ok());
  EXPECT_TRUE(m.CheckWithinStage({}).ok());
  const auto s = m.CheckWithinStage(bad);
  for (const char* part : {"[6,7,8,9]", "axis pp", "rank 6 is in stage 0", "rank 8 in stage 1", "[4,5,6,7]"}) EXPECT_NE(s.message().find(part), absl::string_view::npos) << s;
  EXPECT_NE(m.CheckWithinStage(outside).message().find("rank 16"), absl::string_view::npos);
}

TEST(MeshTest, FillsWhatIsZero) {
  config::MeshConfig c;
  EXPECT_EQ(MeshFromConfig(4, c, 8)->size(Axis::kEp), 4);
  EXPECT_EQ(MeshFromConfig(6, c, 8)->size(Axis::kEp), 2);
  EXPECT_EQ(MeshFromConfig(6, c, 8)->size(Axis::kEdp), 3);
  EXPECT_EQ(MeshFromConfig(6, c, 8)->size(Axis::kDp), 6);
  EXPECT_EQ(MeshFromConfig(7, c, 8)->size(Axis::kEp), 1);
  c.set_pp(2);
  EXPECT_EQ(MeshFromConfig(8, c, 8)->size(Axis::kEp), 4);
  c.set_etp(2);
  c.set_tp(4);
  EXPECT_EQ(MeshFromConfig(8, c, 8)->size(Axis::kEp), 2);
  EXPECT_EQ(MeshFromConfig(8, c, 8)->size(Axis::kDp), 1);
  c.set_ep(1);
  EXPECT_EQ(MeshFromConfig(8, c, 8)->size(Axis::kEdp), 2);
}

TEST(MeshTest, MisuseNamesFieldValueAndRemedy) {
  const auto refused = [](int64_t world, const char* field, int value, const std::vector<std::pair<const char*, int>>& others, const std::vector<std::string>& parts) {
    config::MeshConfig c;
    const auto set = [&](const std::string& axis, int v) { c.GetReflection()->SetInt32(&c, c.GetDescriptor()->FindFieldByName(axis), v); };
    set(field, value);
    for (const auto& [axis, v] : others) set(axis, v);
    const auto s = MeshFromConfig(world, c, 8).status();
    EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument) << field;
    for (const std::string& part : parts) EXPECT_NE(s.message().find(part), absl::string_view::npos) << "no '" << part << "' in: " << s;
  };
  refused(4, "dp", 3, {}, {"mesh.dp 3 ", "mesh.dp=4"});
  refused(8, "dp", 8, {{"tp", 2}, {"pp", 2}}, {"mesh.dp 8 ", "mesh.tp 2", "mesh.pp 2", "mesh.dp=2"});
  refused(4, "ep", 3, {}, {"mesh.ep 3 ", "which is 4", "mesh.ep=2 or 4"});
  refused(4, "ep", 64, {}, {"mesh.ep 64 ", "mesh.ep=4"});
  refused(12, "ep", 8, {{"etp", 2}, {"pp", 2}}, {"mesh.ep 8 ", "ranks 12 / mesh.pp 2", "mesh.etp 2", "which is 3", "mesh.ep=3"});
  refused(4, "pp", 3, {}, {"mesh.pp 3 ", "ranks, which is 4", "mesh.pp=2 or 4"});
  refused(12, "tp", 5, {{"pp", 2}}, {"mesh.tp 5 ", "ranks 12 / mesh.pp 2", "which is 6", "mesh.tp=3 or 6"});
  refused(12, "cp", 4, {{"tp", 2}}, {"mesh.cp 4 ", "mesh.tp 2", "which is 6", "mesh.cp=3 or 6"});
  refused(12, "etp", 5, {}, {"mesh.etp 5 ", "mesh.etp=4 or 6"});
  refused(4, "tp", -1, {}, {"mesh.tp is -1", "at least 1"});
  refused(4, "ep", -2, {}, {"mesh.ep is -2", "at least 1"});
  refused(0, "dp", 1, {}, {"ranks is 0"});
  // Products beyond 64 bits.
  const int most = std::numeric_limits<int>::max();
  refused(4, "tp", most, {{"cp", most}, {"pp", most}, {"dp", most}, {"ep", most}, {"etp", most}}, {"mesh.pp 2147483647 ", "mesh.pp=4"});
}

}  // namespace
}  // namespace moe
