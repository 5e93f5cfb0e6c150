#include "core/plan/check.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "core/plan/loss_rows.h"
#include "gtest/gtest.h"

namespace moe {
namespace {

struct Layout {
  int64_t tp = 1, cp = 1, dp = 1, pp = 1, etp = 1, ep = 1;
  ScheduleKind kind = ScheduleKind::kOneFOneB;
  int64_t micro_batches = 4;
  bool sums = true, tied = false;
  int64_t layers = 0;   // 0: two per virtual stage
  int64_t dense = 0;
  std::string capacity = "";   // scope
};

World Make(const Layout& l) {
  config::Config c;
  const int64_t v = l.kind == ScheduleKind::kInterleaved && l.pp > 1 ? 2 : 1;
  c.mutable_model()->set_num_layers(l.layers > 0 ? l.layers : 2 * l.pp * v);
  c.mutable_model()->set_num_dense_layers(l.dense);
  c.mutable_model()->set_num_global_experts(8);
  c.mutable_pipeline()->set_kind(Name(l.kind));
  if (!l.capacity.empty()) {
    c.mutable_gate()->set_capacity_factor(1.25);
    c.mutable_gate()->set_capacity_scope(l.capacity);
  }
  const auto mesh = Mesh::Make(l.tp * l.cp * l.dp * l.pp, {l.tp, l.cp, l.dp, l.pp, l.etp, l.ep});
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  auto world = MakeWorld(c, *mesh, {{l.kind, l.pp, v, l.micro_batches}, l.sums, l.tied}, 3 * LossRows(256, l.tp));
  EXPECT_TRUE(world.ok()) << world.status();
  return *std::move(world);
}

Verdict Check(const World& w) {
  auto v = CheckPrograms(w);
  EXPECT_TRUE(v.ok()) << v.status();
  return v.ok() ? *v : Verdict{};
}

constexpr ScheduleKind kKinds[] = {ScheduleKind::kGpipe, ScheduleKind::kOneFOneB, ScheduleKind::kInterleaved, ScheduleKind::kZeroBubble};

// All layouts of n ranks.
std::vector<Layout> Factorisations(int64_t n) {
  std::vector<Layout> out;
  for (int64_t pp = 1; pp <= n; ++pp)
    for (int64_t tp = 1; tp <= n; ++tp)
      for (int64_t cp = 1; cp <= n; ++cp)
        for (int64_t ep = 1; ep <= n; ++ep)
          for (int64_t etp = 1; etp <= n; ++etp) {
            if (n % (pp * tp * cp) != 0 || n % (pp * ep * etp) != 0) continue;
            Layout l;
            l.pp = pp, l.tp = tp, l.cp = cp, l.ep = ep, l.etp = etp, l.dp = n / (pp * tp * cp);
            out.push_back(l);
          }
  return out;
}
std::string Text(const Layout& l) {
  return absl::StrCat(Name(l.kind), " tp", l.tp, " cp", l.cp, " dp", l.dp, " pp", l.pp, " etp", l.etp, " ep", l.ep, " M", l.micro_batches);
}

// H1, H26: every layout of 8 ranks (several expert-parallel groups in most of them), with every schedule.
TEST(Check, EveryLayoutOfEightRanksIsFree) {
  int64_t layouts = 0;
  for (Layout l : Factorisations(8)) {
    for (ScheduleKind kind : kKinds) {
      l.kind = kind;
      l.micro_batches = kind == ScheduleKind::kInterleaved ? 2 * l.pp : 5;
      for (bool odd : {false, true}) {
        l.sums = l.tied = odd;
        l.capacity = odd ? "global" : "";
        l.dense = odd ? 1 : 0;
        const Verdict v = Check(Make(l));
        ASSERT_TRUE(v.free) << Text(l) << "\n" << v.text;
        ASSERT_EQ(v.classes, l.pp) << Text(l);   // a stage is a class
        ASSERT_TRUE(absl::StrContains(v.text, "free of deadlock: 8 ranks")) << v.text;
        ++layouts;
      }
    }
  }
  EXPECT_GT(layouts, 300);
}

// H13: fewer micro-batches than stages; G10: any number of them.
TEST(Check, AnyNumberOfMicroBatches) {
  for (ScheduleKind kind : {ScheduleKind::kGpipe, ScheduleKind::kOneFOneB, ScheduleKind::kZeroBubble})
    for (int64_t m = 1; m <= 9; ++m) {
      Layout l;
      l.pp = 4, l.tp = 2, l.kind = kind, l.micro_batches = m;
      const Verdict v = Check(Make(l));
      EXPECT_TRUE(v.free) << Text(l) << "\n" << v.text;
    }
}

// H14: two stages with two virtual stages each: the next and the previous peer are the same rank.
TEST(Check, TwoStagesOfTwoVirtualStages) {
  for (int64_t m : {2, 4, 8}) {
    Layout l;
    l.pp = 2, l.dp = 2, l.ep = 2, l.kind = ScheduleKind::kInterleaved, l.micro_batches = m;
    EXPECT_TRUE(Check(Make(l)).free);
  }
}

TEST(Check, StagesWithoutExpertsAndWithoutLayers) {
  Layout l;
  l.pp = 2, l.dp = 2, l.ep = 2, l.layers = 4, l.dense = 2;
  World w = Make(l);
  EXPECT_TRUE(Check(w).free);
  w.chunks[0].num_layers = 0;
  w.chunks[1].first_layer = 0;
  w.chunks[1].num_layers = 4;
  EXPECT_TRUE(Check(w).free);
}

void ExpectFound(const World& w, std::vector<std::string> words) {
  const Verdict v = Check(w);
  EXPECT_FALSE(v.free);
  for (const std::string& word : words) EXPECT_TRUE(absl::StrContains(v.text, word)) << "lacks \"" << word << "\":\n" << v.text;
}

World Seeded(const Layout& l, Mistake m) {
  World w = Make(l);
  const absl::Status s = SeedMistake(m, &w);
  EXPECT_TRUE(s.ok()) << s;
  return w;
}

// H2.
TEST(Mistakes, GroupAcrossStages) {
  Layout l;
  l.pp = 2, l.dp = 2, l.ep = 2, l.sums = false;
  const World w = Seeded(l, Mistake::kGroupAcrossStages);
  ExpectFound(w, {"group across stages: ep group [0,1,2,3] crosses the pipeline axis pp: rank 0 is in stage 0, rank 2 in stage 1",
                  "rank 0 (stage 0) waits for rank 2 in all-gather \"counts\" of layer 0 in forward of micro-batch 0 in virtual stage 0 on ep group [0,1,2,3]",
                  "rank 2 (stage 1) waits for rank 0 in receive of activation of micro-batch 0 from rank 0"});
  const Verdict v = Check(w);
  EXPECT_EQ(v.first_rank, 0);
  EXPECT_EQ(v.second_rank, 2);
  EXPECT_TRUE(absl::StrContains(v.first_operation, "counts")) << v.first_operation;
  EXPECT_TRUE(absl::StrContains(v.second_operation, "receive of activation")) << v.second_operation;
}

// The same without the rule that names it: with one rank per expert group, and when the first stage has no experts.
TEST(Mistakes, GroupAcrossStagesElsewhere) {
  Layout l;
  l.pp = 4, l.layers = 8, l.dense = 3, l.sums = false;
  ExpectFound(Seeded(l, Mistake::kGroupAcrossStages), {"ep group [1,2]", "rank 1 (stage 1) waits for rank 2", "of layer 3"});
  l.pp = 1;
  World w = Make(l);
  EXPECT_TRUE(absl::StrContains(SeedMistake(Mistake::kGroupAcrossStages, &w).message(), "mesh.pp >= 2"));
  l.pp = 2, l.dense = 8;
  w = Make(l);
  EXPECT_TRUE(absl::StrContains(SeedMistake(Mistake::kGroupAcrossStages, &w).message(), "model.num_dense_layers"));
}

TEST(Mistakes, UnfusedSendRecv) {
  for (ScheduleKind kind : {ScheduleKind::kOneFOneB, ScheduleKind::kInterleaved, ScheduleKind::kZeroBubble}) {
    Layout l;
    l.pp = 2, l.kind = kind, l.micro_batches = 4, l.sums = false;
    const Verdict v = Check(Seeded(l, Mistake::kUnfusedSendRecv));
    EXPECT_FALSE(v.free);
    EXPECT_TRUE(absl::StrContains(v.text, "send and receive not fused")) << v.text;
    EXPECT_EQ(v.first_rank, 0);
    EXPECT_EQ(v.second_rank, 1);
    EXPECT_TRUE(absl::StrContains(v.first_operation, "send of activation")) << v.first_operation;
    EXPECT_TRUE(absl::StrContains(v.second_operation, kind == ScheduleKind::kInterleaved ? "send of activation" : "send of gradient")) << v.second_operation;
  }
  Layout l;
  l.pp = 2, l.micro_batches = 1;
  World one = Make(l);
  EXPECT_TRUE(absl::StrContains(SeedMistake(Mistake::kUnfusedSendRecv, &one).message(), "at least 2 micro-batches"));
  l.micro_batches = 4, l.kind = ScheduleKind::kGpipe;
  World gpipe = Make(l);
  EXPECT_EQ(SeedMistake(Mistake::kUnfusedSendRecv, &gpipe).code(), absl::StatusCode::kInvalidArgument);
}

// H11.
TEST(Mistakes, OppositeGroupOrder) {
  Layout l;
  l.dp = 2, l.tp = 2, l.ep = 4, l.pp = 2;
  const Verdict v = Check(Seeded(l, Mistake::kOppositeGroupOrder));
  EXPECT_FALSE(v.free);
  for (const char* word : {"groups used in opposite order: rank 1", "\"counts\" on ep group [0,1,2,3]", "\"attention reduce\" on tp group [0,1]", "rank 0 (stage 0) waits for rank 1 in all-to-all \"attention reduce\" of layer 0",
                           "rank 1 (stage 0) waits for rank 0 in all-gather \"counts\" of layer 0"})
    EXPECT_TRUE(absl::StrContains(v.text, word)) << word << " not in\n" << v.text;
  Layout dp;   // no collective inside a layer: the gradients'
  dp.dp = 4;
  ExpectFound(Seeded(dp, Mistake::kOppositeGroupOrder), {"groups used in opposite order: rank 1 executes", "waits for rank 1", "(stage 0) waits for rank 0"});
  Layout alone;
  alone.pp = 2;
  World w = Make(alone);
  EXPECT_TRUE(absl::StrContains(SeedMistake(Mistake::kOppositeGroupOrder, &w).message(), "mesh.dp >= 2"));
}

TEST(Mistakes, MissingNormAllReduce) {
  Layout l;
  l.dp = 2, l.pp = 2;
  const Verdict v = Check(Seeded(l, Mistake::kMissingNormAllReduce));
  EXPECT_FALSE(v.free);
  for (const char* word : {"operation missing: stage 1 (rank 2 and others) never executes norm", "rank 0 (stage 0) waits for rank 2 in all-reduce \"norm\" on pp group [0,2]", "rank 2 (stage 1) is at the end of the step"})
    EXPECT_TRUE(absl::StrContains(v.text, word)) << word << " not in\n" << v.text;
  Layout one;
  one.dp = 2;
  World w = Make(one);
  EXPECT_TRUE(absl::StrContains(SeedMistake(Mistake::kMissingNormAllReduce, &w).message(), "mesh.pp >= 2"));
}

TEST(Mistakes, MissingMicroBatch) {
  Layout l;
  l.dp = 2, l.ep = 2, l.pp = 2;
  const Verdict v = Check(Seeded(l, Mistake::kMissingMicroBatch));
  EXPECT_FALSE(v.free);
  for (const char* word : {"micro-batch missing: rank 1 never computes micro-batch 3", "waits for rank 1 in", "deadlock: rank"}) EXPECT_TRUE(absl::StrContains(v.text, word)) << word << " not in\n" << v.text;
  EXPECT_TRUE(v.first_rank == 1 || v.second_rank == 1);
  // Ranks that meet only in the reductions: nobody waits, and yet it is wrong.
  Layout dp;
  dp.dp = 2;
  ExpectFound(Seeded(dp, Mistake::kMissingMicroBatch), {"micro-batch missing: rank 1", "micro-batch 3", "no rank waits for ever"});
  Layout pipeline;
  pipeline.pp = 4;
  ExpectFound(Seeded(pipeline, Mistake::kMissingMicroBatch), {"micro-batch missing: rank 0", "waits for rank 0 in receive of activation of micro-batch 3 from rank 0"});
  World w = Make(Layout());
  EXPECT_TRUE(absl::StrContains(SeedMistake(Mistake::kMissingMicroBatch, &w).message(), "ranks >= 2"));
}

// Wherever a mistake can be, it is found: all layouts of 8 ranks, all schedules.
TEST(Mistakes, FoundInEveryLayout) {
  int64_t found[5] = {};
  for (Layout l : Factorisations(8)) {
    for (ScheduleKind kind : kKinds) {
      l.kind = kind;
      l.micro_batches = kind == ScheduleKind::kInterleaved ? l.pp : 3;
      for (Mistake m : kMistakes) {
        World w = Make(l);
        const absl::Status seeded = SeedMistake(m, &w);
        if (!seeded.ok()) continue;
        const Verdict v = Check(w);
        ASSERT_FALSE(v.free) << Text(l) << " " << Name(m);
        constexpr const char* names[] = {"group across stages", "send and receive not fused", "groups used in opposite order", "operation missing", "micro-batch missing"};
        ASSERT_TRUE(absl::StrContains(v.text, names[static_cast<int>(m)])) << Text(l) << " " << Name(m) << "\n" << v.text;
        ASSERT_TRUE(v.first_rank >= 0 || m == Mistake::kMissingMicroBatch) << Text(l) << " " << Name(m) << "\n" << v.text;
        ++found[static_cast<int>(m)];
      }
    }
  }
  for (int64_t n : found) EXPECT_GT(n, 50);
}

// Every rank simulated by itself comes to the same end as classes of ranks.
TEST(Check, ClassesAgreeWithSingleRanks) {
  for (Layout l : Factorisations(8)) {
    l.micro_batches = 3;
    for (int mistake = -1; mistake < 5; ++mistake) {
      World w = Make(l);
      if (mistake >= 0 && !SeedMistake(kMistakes[mistake], &w).ok()) continue;
      const Verdict classes = Check(w);
      for (int64_t r = 0; r < 8; ++r)
        if (w.own.count(r) == 0) w.own[r] = w.ProgramOf(r);
      const Verdict ranks = Check(w);
      EXPECT_EQ(ranks.classes, 8);
      EXPECT_EQ(classes.free, ranks.free) << Text(l) << "\n" << classes.text << "\n" << ranks.text;
      EXPECT_EQ(classes.first_rank >= 0, ranks.first_rank >= 0) << Text(l) << "\n" << classes.text << "\n" << ranks.text;
    }
  }
}

TEST(Check, MessageWithoutReceiver) {
  Layout l;
  l.pp = 2, l.sums = false;
  World w = Make(l);
  for (size_t i = 0; i < w.programs[1].size(); ++i)
    if (w.programs[1][i].kind == OpKind::kExchange) {
      w.programs[1].erase(w.programs[1].begin() + i);
      break;
    }
  ExpectFound(w, {"message without receiver: stage 0 sends the activation of micro-batch 0 over boundary 0 to stage 1", "deadlock: rank 0 (stage 0) waits for rank 1"});
}

// H8: nothing crosses ranks for experts that are all here.
TEST(Check, OneExpertRankNeedsNoAllToAll) {
  Layout l;
  l.dp = 4;
  for (const RankOp& o : Make(l).ProgramOf(0))
    for (const Collective& c : *o.collectives) EXPECT_NE(c.kind, Collective::Kind::kAllToAllV) << c.what;
}

TEST(Check, MismatchedCollectives) {
  Layout l;
  l.dp = 2, l.ep = 2;
  World w = Make(l);
  RankProgram p = w.ProgramOf(1);
  for (RankOp& o : p) {
    if (o.op.kind != OpKind::kForward) continue;
    std::vector<Collective> list = *o.collectives;
    list[0].kind = Collective::Kind::kAllReduce;
    o.collectives = std::make_shared<const std::vector<Collective>>(list);
    break;
  }
  w.own[1] = p;
  ExpectFound(w, {"rank 0 (stage 0) waits for rank 1 in ", "rank 1 (stage 0) waits for rank 0 in "});
}

TEST(Check, NamesOfMistakes) {
  for (Mistake m : kMistakes) EXPECT_EQ(*ParseMistake(Name(m)), m);
  EXPECT_TRUE(absl::StrContains(ParseMistake("x").status().message(), "missing_micro_batch"));
}

TEST(Check, RefusesWhatDoesNotFit) {
  Layout l;
  l.pp = 2;
  World w = Make(l);
  w.programs.pop_back();
  EXPECT_EQ(CheckPrograms(w).status().code(), absl::StatusCode::kInvalidArgument);
  w = Make(l);
  w.own[7] = {};
  EXPECT_TRUE(absl::StrContains(CheckPrograms(w).status().message(), "rank 7"));
}

}  // namespace
}  // namespace moe
