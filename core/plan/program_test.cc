#include "core/plan/program.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

namespace moe {
namespace {

bool AcrossStages(OpKind k) {
  switch (k) {
    case OpKind::kRoute: case OpKind::kForward: case OpKind::kBackward: case OpKind::kBackwardInput: case OpKind::kBackwardWeight: case OpKind::kExchange: return false;
    default: return true;
  }
}

// Executes the programs with no buffer at all: a message moves when both sides have posted it, an exchange ends when all of its
// messages have moved, what all stages share when every stage is there. Checks that what an op needs has come. Empty: ended well.
std::string Execute(const std::vector<StageProgram>& programs, const ScheduleShape& s) {
  const int64_t P = s.stages, V = P * s.virtual_stages;
  struct State { size_t at = 0; bool posted = false; };
  std::vector<State> state(P);
  std::map<uint32_t, std::set<int64_t>> posted;   // tag -> stages
  std::set<std::tuple<bool, int64_t, int64_t>> done, come;   // (gradient, chunk, micro): computed; come as input of a chunk
  const auto where = [&] {
    std::string out;
    for (int64_t i = 0; i < P; ++i) absl::StrAppend(&out, "stage ", i, ": ", state[i].at < programs[i].size() ? ToString(programs[i][state[i].at]) : "end", "; ");
    return out;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (int64_t i = 0; i < P; ++i) {
      while (state[i].at < programs[i].size()) {
        const Op& op = programs[i][state[i].at];
        if (AcrossStages(op.kind)) break;
        const bool up = op.kind == OpKind::kForward || op.kind == OpKind::kRoute;
        if (op.kind == OpKind::kExchange) {
          if (op.transfers.empty()) return "empty exchange";
          if (!state[i].posted) {
            for (const Transfer& t : op.transfers) {
              const int64_t other = t.gradient == t.send ? t.boundary : t.boundary + 1;   // the virtual stage at the other end
              if (t.peer != other % P || t.peer == i) return "wrong peer in " + ToString(op);
              const int64_t mine = t.gradient == t.send ? t.boundary + 1 : t.boundary;
              if (mine % P != i) return "not of this stage: " + ToString(op);
              if (t.send && done.count({t.gradient, mine, t.micro}) == 0) return "sends what is not computed: " + ToString(op);
              if (!posted[Tag(t, s.micro_batches, V)].insert(i).second) return "tag used twice: " + ToString(op);
            }
            state[i].posted = true;
            moved = true;
          }
          bool all = true;
          for (const Transfer& t : op.transfers) all = all && posted[Tag(t, s.micro_batches, V)].count(t.peer) == 1;
          if (!all) break;
          for (const Transfer& t : op.transfers)
            if (!t.send) come.insert({t.gradient, t.gradient ? t.boundary : t.boundary + 1, t.micro});
          state[i].posted = false;
        } else {
          if (op.chunk % P != i) return "not of this stage: " + ToString(op);
          const auto input = [&](bool gradient, int64_t from) {
            return P == 1 ? done.count({gradient, from, op.micro}) == 1 : come.count({gradient, op.chunk, op.micro}) == 1;
          };
          if (up && op.chunk > 0 && !input(false, op.chunk - 1)) return "no input for " + ToString(op);
          if (!up && done.count({false, op.chunk, op.micro}) == 0) return "no forward before " + ToString(op);
          if (!up && op.kind != OpKind::kBackwardWeight && op.chunk < V - 1 && !input(true, op.chunk + 1)) return "no gradient for " + ToString(op);
          if (op.kind == OpKind::kBackwardWeight && done.count({true, op.chunk, op.micro}) == 0) return "no inputs' half before " + ToString(op);
          if (op.kind != OpKind::kBackwardWeight && !done.insert({!up, op.chunk, op.micro}).second) return "twice: " + ToString(op);
        }
        ++state[i].at;
        moved = true;
      }
    }
    // All at the same shared op?
    bool together = !moved;
    for (int64_t i = 0; i < P && together; ++i) together = state[i].at < programs[i].size() && AcrossStages(programs[i][state[i].at].kind) && programs[i][state[i].at].kind == programs[0][state[0].at].kind;
    if (together) {
      const OpKind kind = programs[0][state[0].at].kind;
      if (kind == OpKind::kReduceRouting && std::any_of(programs[0].begin(), programs[0].end(), [](const Op& op) { return op.kind == OpKind::kRoute; })) {
        posted.clear();   // the prepass is over: its messages have the tags of the forwards
        done.clear();
        come.clear();
      }
      for (State& one : state) ++one.at;
      moved = true;
    }
  }
  for (int64_t i = 0; i < P; ++i)
    if (state[i].at < programs[i].size()) return "stuck: " + where();
  return "";
}

std::vector<ScheduleShape> AllShapes() {
  std::vector<ScheduleShape> out;
  for (ScheduleKind kind : {ScheduleKind::kGpipe, ScheduleKind::kOneFOneB, ScheduleKind::kInterleaved, ScheduleKind::kZeroBubble})
    for (int64_t P = 1; P <= 16; ++P)
      for (int64_t v = 1; v <= 4; ++v)
        for (int64_t M = 1; M <= 16; ++M) {
          if (v > 1 && (kind == ScheduleKind::kOneFOneB || kind == ScheduleKind::kZeroBubble)) continue;
          if (kind == ScheduleKind::kInterleaved && M % P != 0) continue;
          out.push_back({kind, P, v, M});
        }
  return out;
}
std::string Text(const ScheduleShape& s) { return absl::StrCat(Name(s.kind), " P ", s.stages, " v ", s.virtual_stages, " M ", s.micro_batches); }

std::string Text(const StageProgram& p) {
  return absl::StrJoin(p, " | ", [](std::string* out, const Op& op) { absl::StrAppend(out, ToString(op)); });
}

std::vector<StageProgram> Made(const StepShape& shape) {
  auto programs = MakeStepProgram(shape);
  EXPECT_TRUE(programs.ok()) << programs.status();
  return programs.ok() ? *programs : std::vector<StageProgram>();
}

TEST(Program, EndsWithoutBuffers) {
  for (const ScheduleShape& s : AllShapes()) {
    for (bool sums : {false, true}) {
      const auto programs = MakeStepProgram({s, sums, sums});
      ASSERT_TRUE(programs.ok()) << Text(s) << programs.status();
      ASSERT_EQ(static_cast<int64_t>(programs->size()), s.stages);
      ASSERT_EQ(Execute(*programs, s), "") << Text(s);
    }
  }
}

TEST(Program, ComputesTheTasksOfTheSchedule) {
  for (const ScheduleShape& s : AllShapes()) {
    const auto programs = Made({s, true, false});
    const auto tasks = *MakeSchedule(s);
    for (int64_t i = 0; i < s.stages; ++i) {
      size_t at = 0;
      for (const Op& op : programs[i]) {
        if (AcrossStages(op.kind) || op.kind == OpKind::kExchange || op.kind == OpKind::kRoute) continue;
        ASSERT_LT(at, tasks[i].size());
        const Task& t = tasks[i][at++];
        ASSERT_TRUE(op.chunk == t.chunk && op.micro == t.micro) << Text(s) << " stage " << i;
      }
      ASSERT_EQ(at, tasks[i].size()) << Text(s);
    }
  }
}

TEST(Program, ForwardOnly) {
  for (const ScheduleShape& s : AllShapes()) {
    for (int64_t more : {0, 1}) {   // also numbers of micro-batches that the schedule would refuse
      ScheduleShape shape = s;
      shape.micro_batches += more;
      const auto programs = MakeForwardProgram(shape);
      ASSERT_TRUE(programs.ok()) << Text(shape) << programs.status();
      ASSERT_EQ(Execute(*programs, shape), "") << Text(shape);
      for (int64_t i = 0; i < shape.stages; ++i) {
        int64_t forwards = 0;
        for (const Op& op : (*programs)[i]) {
          ASSERT_TRUE(op.kind == OpKind::kForward || op.kind == OpKind::kExchange);
          forwards += op.kind == OpKind::kForward;
        }
        ASSERT_EQ(forwards, shape.virtual_stages * shape.micro_batches);
      }
    }
  }
}

TEST(Program, FusesNeighboursAsIn1F1B) {
  const auto p = Made({{ScheduleKind::kOneFOneB, 2, 1, 3}, false, false});
  EXPECT_EQ(Text(p[0]),
            "begin | F0 | exchange {send activation 0 to stage 1} | F1 | exchange {send activation 1 to stage 1, receive gradient 0 from stage 1} | B0 | F2 | "
            "exchange {send activation 2 to stage 1, receive gradient 1 from stage 1} | B1 | exchange {receive gradient 2 from stage 1} | B2 | "
            "routing sums | dense gradients | replicated gradients | expert gradients | metrics | norm | update");
  EXPECT_EQ(Text(p[1]),
            "begin | exchange {receive activation 0 from stage 0} | F0.1 | B0.1 | exchange {send gradient 0 to stage 0, receive activation 1 from stage 0} | F1.1 | B1.1 | "
            "exchange {send gradient 1 to stage 0, receive activation 2 from stage 0} | F2.1 | B2.1 | exchange {send gradient 2 to stage 0} | "
            "routing sums | dense gradients | replicated gradients | expert gradients | metrics | norm | update");
}

TEST(Program, VirtualStagesOfOneRankNeedNoExchange) {
  const auto programs = Made({{ScheduleKind::kGpipe, 1, 4, 3}, true, true});
  for (const Op& op : programs.front()) EXPECT_NE(op.kind, OpKind::kExchange);
}

// With two stages the next and the previous peer are the same one.
TEST(Program, DirectionsDoNotMixWithTwoStages) {
  const ScheduleShape s{ScheduleKind::kInterleaved, 2, 2, 4};
  const auto programs = Made({s, false, false});
  std::map<uint32_t, std::vector<Transfer>> by_tag;
  for (const StageProgram& p : programs)
    for (const Op& op : p)
      for (const Transfer& t : op.transfers) by_tag[Tag(t, 4, 4)].push_back(t);
  EXPECT_EQ(by_tag.size(), 3u * 4 * 2);   // boundaries, micro-batches, directions
  for (const auto& [tag, both] : by_tag) {
    ASSERT_EQ(both.size(), 2u);
    EXPECT_NE(both[0].send, both[1].send);
    EXPECT_EQ(both[0].gradient, both[1].gradient);
    EXPECT_EQ(both[0].boundary, both[1].boundary);
    EXPECT_EQ(both[0].micro, both[1].micro);
  }
}

int64_t At(const StageProgram& p, OpKind kind) {
  const auto it = std::find_if(p.begin(), p.end(), [&](const Op& op) { return op.kind == kind; });
  return it == p.end() ? -1 : it - p.begin();
}

TEST(Program, RoutingSums) {
  struct Case { ScheduleKind kind; int64_t P, M; bool prepass; };
  for (const Case& c : {Case{ScheduleKind::kGpipe, 4, 6, false}, Case{ScheduleKind::kOneFOneB, 1, 1, false}, Case{ScheduleKind::kOneFOneB, 1, 4, true}, Case{ScheduleKind::kOneFOneB, 3, 4, true},
                        Case{ScheduleKind::kInterleaved, 2, 4, true}, Case{ScheduleKind::kZeroBubble, 2, 2, true}, Case{ScheduleKind::kOneFOneB, 4, 1, false}}) {
    const ScheduleShape s{c.kind, c.P, 1, c.M};
    const auto programs = Made({s, true, false});
    for (const StageProgram& p : programs) {
      EXPECT_EQ(std::count_if(p.begin(), p.end(), [](const Op& op) { return op.kind == OpKind::kRoute; }), c.prepass ? c.M : 0) << Text(s);
      EXPECT_EQ(std::count_if(p.begin(), p.end(), [](const Op& op) { return op.kind == OpKind::kReduceRouting; }), 1);
      const int64_t sums = At(p, OpKind::kReduceRouting), backward = std::max(At(p, OpKind::kBackward), At(p, OpKind::kBackwardInput));
      EXPECT_LT(sums, backward) << Text(s);
      EXPECT_EQ(At(p, OpKind::kForward) > sums, c.prepass) << Text(s);
    }
    for (const StageProgram& p : Made({s, false, false})) {   // not needed: after the flush
      EXPECT_EQ(At(p, OpKind::kRoute), -1);
      EXPECT_EQ(At(p, OpKind::kReduceRouting) + 1, At(p, OpKind::kReduceDense));
    }
  }
}

TEST(Program, TiedEmbeddings) {
  for (int64_t P : {1, 2, 5})
    for (bool tied : {false, true})
      for (const StageProgram& p : Made({{ScheduleKind::kOneFOneB, P, 1, 2}, false, tied}))
        EXPECT_EQ(At(p, OpKind::kReduceTied), tied && P > 1 ? At(p, OpKind::kReduceExpert) + 1 : -1);
}

TEST(Program, Refuses) { EXPECT_EQ(MakeStepProgram({{ScheduleKind::kInterleaved, 4, 2, 6}, false, false}).status().code(), absl::StatusCode::kInvalidArgument); }

}  // namespace
}  // namespace moe
