#include "core/plan/schedule.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

namespace moe {
namespace {

std::string Letters(const std::vector<Task>& tasks) {
  return absl::StrJoin(tasks, " ", [](std::string* out, const Task& t) {
    constexpr const char* letters[] = {"F", "B", "I", "W"};
    absl::StrAppend(out, letters[static_cast<int>(t.kind)], t.micro, t.chunk > 0 ? absl::StrCat(".", t.chunk) : "");
  });
}

std::vector<std::string> Order(ScheduleKind kind, int64_t P, int64_t v, int64_t M) {
  const auto tasks = MakeSchedule({kind, P, v, M});
  EXPECT_TRUE(tasks.ok()) << tasks.status();
  std::vector<std::string> out;
  if (tasks.ok())
    for (const auto& t : *tasks) out.push_back(Letters(t));
  return out;
}

TEST(Schedule, Gpipe) {
  EXPECT_EQ(Order(ScheduleKind::kGpipe, 2, 1, 3), (std::vector<std::string>{"F0 F1 F2 B2 B1 B0", "F0.1 F1.1 F2.1 B2.1 B1.1 B0.1"}));
  // Virtual stages: rounds of P micro-batches, the last one shorter.
  EXPECT_EQ(Order(ScheduleKind::kGpipe, 2, 2, 3), (std::vector<std::string>{"F0 F1 F0.2 F1.2 F2 F2.2 B2.2 B2 B1.2 B0.2 B1 B0", "F0.1 F1.1 F0.3 F1.3 F2.1 F2.3 B2.3 B2.1 B1.3 B0.3 B1.1 B0.1"}));
}

TEST(Schedule, OneForwardOneBackward) {
  EXPECT_EQ(Order(ScheduleKind::kOneFOneB, 3, 1, 4), (std::vector<std::string>{"F0 F1 F2 B0 F3 B1 B2 B3", "F0.1 F1.1 B0.1 F2.1 B1.1 F3.1 B2.1 B3.1", "F0.2 B0.2 F1.2 B1.2 F2.2 B2.2 F3.2 B3.2"}));
  EXPECT_EQ(Order(ScheduleKind::kOneFOneB, 3, 1, 1), (std::vector<std::string>{"F0 B0", "F0.1 B0.1", "F0.2 B0.2"}));   // fewer micro-batches than stages
}

// arXiv 2104.04473, figure 4 (two devices here): warm-up 2 (P - 1 - stage) + (v - 1) P.
TEST(Schedule, Interleaved) {
  EXPECT_EQ(Order(ScheduleKind::kInterleaved, 2, 2, 4),
            (std::vector<std::string>{"F0 F1 F0.2 F1.2 F2 B0.2 F3 B1.2 F2.2 B0 F3.2 B1 B2.2 B3.2 B2 B3", "F0.1 F1.1 F0.3 B0.3 F1.3 B1.3 F2.1 B0.1 F3.1 B1.1 F2.3 B2.3 F3.3 B3.3 B2.1 B3.1"}));
}

// arXiv 2401.10241: a stage owes at most `stage` weight halves while forwards remain.
TEST(Schedule, ZeroBubble) {
  EXPECT_EQ(Order(ScheduleKind::kZeroBubble, 3, 1, 4), (std::vector<std::string>{"F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3", "F0.1 F1.1 I0.1 F2.1 I1.1 W0.1 F3.1 I2.1 W1.1 I3.1 W2.1 W3.1",
                                                                                 "F0.2 I0.2 F1.2 I1.2 F2.2 I2.2 W0.2 F3.2 I3.2 W1.2 W2.2 W3.2"}));
}

TEST(Schedule, Names) {
  for (ScheduleKind k : {ScheduleKind::kGpipe, ScheduleKind::kOneFOneB, ScheduleKind::kInterleaved, ScheduleKind::kZeroBubble}) EXPECT_EQ(*ParseScheduleKind(Name(k)), k);
  const absl::Status s = ParseScheduleKind("2f2b").status();
  for (const char* word : {"pipeline.kind", "'2f2b'", "1f1b", "zero_bubble"}) EXPECT_TRUE(absl::StrContains(s.message(), word)) << s;
}

void ExpectRefused(const ScheduleShape& shape, std::vector<std::string> words) {
  const absl::Status s = MakeSchedule(shape).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument);
  for (const std::string& w : words) EXPECT_TRUE(absl::StrContains(s.message(), w)) << s << " lacks " << w;
}

TEST(Schedule, Refuses) {
  ExpectRefused({ScheduleKind::kOneFOneB, 2, 2, 4}, {"pipeline.virtual_stages is 2", "1f1b", "interleaved"});
  ExpectRefused({ScheduleKind::kZeroBubble, 2, 3, 4}, {"pipeline.virtual_stages is 3", "zero_bubble"});
  ExpectRefused({ScheduleKind::kInterleaved, 4, 2, 6}, {"micro-batches is 6", "4 or 8", "train.micro_batch"});
  ExpectRefused({ScheduleKind::kInterleaved, 4, 2, 3}, {"micro-batches is 3", "work: 4 "});
  ExpectRefused({ScheduleKind::kGpipe, 0, 1, 1}, {"mesh.pp is 0"});
  ExpectRefused({ScheduleKind::kGpipe, 1, 0, 1}, {"pipeline.virtual_stages is 0"});
  ExpectRefused({ScheduleKind::kGpipe, 1, 1, 0}, {"micro-batches is 0"});
}

// Time of each kind of task of one virtual stage.
struct Cost { double forward, input, weight; };

struct Timing {
  bool stuck = false;
  double end = 0;
  std::vector<double> idle;            // per stage, until the last stage ends
  std::vector<int64_t> most_in_flight; // per stage: forwards whose backward (of inputs) is to come
  std::vector<int64_t> most_held;      // the same until the weights' half, too, is done
};

// Tasks start when the stage is free and their input is there; messages take no time.
Timing Ideal(const ScheduleShape& shape, const Cost& cost) {
  const auto tasks = *MakeSchedule(shape);
  const int64_t P = shape.stages, V = P * shape.virtual_stages;
  std::map<std::pair<int64_t, int64_t>, double> forward_end, backward_end;   // (chunk, micro)
  std::vector<size_t> next(P, 0);
  std::vector<double> now(P, 0), busy(P, 0);
  Timing run;
  run.most_in_flight.resize(P);
  run.most_held.resize(P);
  std::vector<int64_t> in_flight(P, 0), held(P, 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (int64_t s = 0; s < P; ++s) {
      for (; next[s] < tasks[s].size(); ++next[s], moved = true) {
        const Task& t = tasks[s][next[s]];
        double ready = now[s], length = 0;
        const auto need = [&](const std::map<std::pair<int64_t, int64_t>, double>& from, int64_t chunk) {
          const auto it = from.find({chunk, t.micro});
          if (it == from.end()) return false;
          ready = std::max(ready, it->second);
          return true;
        };
        if (t.kind == TaskKind::kForward) {
          if (t.chunk > 0 && !need(forward_end, t.chunk - 1)) break;
          length = cost.forward;
          forward_end[{t.chunk, t.micro}] = ready + length;
          run.most_in_flight[s] = std::max(run.most_in_flight[s], ++in_flight[s]);
          run.most_held[s] = std::max(run.most_held[s], ++held[s]);
        } else if (t.kind == TaskKind::kBackwardWeight) {
          if (!need(backward_end, t.chunk)) break;
          length = cost.weight;
          --held[s];
        } else {
          if (!need(forward_end, t.chunk) || (t.chunk < V - 1 && !need(backward_end, t.chunk + 1))) break;
          length = cost.input + (t.kind == TaskKind::kBackward ? cost.weight : 0);
          backward_end[{t.chunk, t.micro}] = ready + length;
          --in_flight[s];
          held[s] -= t.kind == TaskKind::kBackward;
        }
        now[s] = ready + length;
        busy[s] += length;
      }
    }
  }
  for (int64_t s = 0; s < P; ++s) {
    run.stuck = run.stuck || next[s] < tasks[s].size();
    run.end = std::max(run.end, now[s]);
  }
  for (int64_t s = 0; s < P; ++s) run.idle.push_back(run.end - busy[s]);
  return run;
}

struct Case { ScheduleKind kind; int64_t P, v, M; };

std::vector<Case> AllCases() {
  std::vector<Case> out;
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

TEST(Schedule, EveryTaskOnceOnItsStageInAPossibleOrder) {
  for (const Case& c : AllCases()) {
    SCOPED_TRACE(absl::StrCat(Name(c.kind), " P ", c.P, " v ", c.v, " M ", c.M));
    const ScheduleShape shape{c.kind, c.P, c.v, c.M};
    const auto tasks = MakeSchedule(shape);
    ASSERT_TRUE(tasks.ok()) << tasks.status();
    std::set<std::tuple<TaskKind, int64_t, int64_t>> seen;
    for (int64_t s = 0; s < c.P; ++s) {
      for (const Task& t : (*tasks)[s]) {
        EXPECT_EQ(t.chunk % c.P, s);
        EXPECT_TRUE(t.chunk >= 0 && t.chunk < c.P * c.v && t.micro >= 0 && t.micro < c.M);
        EXPECT_TRUE(seen.insert({t.kind, t.chunk, t.micro}).second) << Letters({t});
      }
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), c.P * c.v * c.M * (c.kind == ScheduleKind::kZeroBubble ? 3 : 2));
    ASSERT_FALSE(Ideal(shape, {1, 1, 1}).stuck);
  }
}

TEST(Schedule, InFlight) {
  for (int64_t P : {1, 2, 4, 7}) {
    for (int64_t M : {1, 3, 8, 16}) {
      const Timing one = Ideal({ScheduleKind::kOneFOneB, P, 1, M}, {1, 1, 1}), all = Ideal({ScheduleKind::kGpipe, P, 1, M}, {1, 1, 1}), zero = Ideal({ScheduleKind::kZeroBubble, P, 1, M}, {1, 1, 1});
      for (int64_t s = 0; s < P; ++s) {
        EXPECT_EQ(one.most_in_flight[s], std::min(P - s, M));
        EXPECT_EQ(all.most_in_flight[s], M);
        EXPECT_EQ(zero.most_in_flight[s], std::min(P - s, M));
        EXPECT_LE(zero.most_held[s], std::min(P, M));   // no more memory than the first stage of 1f1b
      }
    }
  }
}

// The formulas of schedule.h, on every stage.
TEST(Schedule, Bubbles) {
  for (const Cost& c : {Cost{1, 1, 1}, Cost{4, 5, 3}, Cost{3, 2, 2}}) {
    const double F = c.forward, B = c.input + c.weight, W = c.weight;
    for (int64_t P : {1, 2, 3, 4, 8}) {
      for (int64_t M : {P, 2 * P, 4 * P, 4 * P + 1}) {
        SCOPED_TRACE(absl::StrCat("P ", P, " M ", M, " F ", F, " B ", B, " W ", W));
        for (double idle : Ideal({ScheduleKind::kGpipe, P, 1, M}, c).idle) EXPECT_NEAR(idle, (P - 1) * (F + B), 1e-9);
        for (double idle : Ideal({ScheduleKind::kOneFOneB, P, 1, M}, c).idle) EXPECT_NEAR(idle, (P - 1) * (F + B), 1e-9);
        if (M >= 2 * P) {
          for (double idle : Ideal({ScheduleKind::kZeroBubble, P, 1, M}, c).idle) EXPECT_NEAR(idle, (P - 1) * (F + B - 2 * W), 1e-9);
        }
        if (M % P != 0) continue;
        for (int64_t v : {1, 2, 4}) {
          for (double idle : Ideal({ScheduleKind::kInterleaved, P, v, M}, c).idle) EXPECT_NEAR(idle, (P - 1) * (F + B), 1e-9) << v;   // of a virtual stage: 1/v of the stage's
          for (double idle : Ideal({ScheduleKind::kGpipe, P, v, M}, c).idle) EXPECT_NEAR(idle, (P - 1) * (F + B), 1e-9) << v;
        }
      }
    }
  }
}

}  // namespace
}  // namespace moe
