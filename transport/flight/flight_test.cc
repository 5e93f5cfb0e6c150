// What recorders write is what readers read, also of ranks that were killed or stopped; the report names who waits, for whom, and where it began.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "transport/descriptor.h"
#include "transport/flight/recorder.h"
#include "transport/flight/report.h"

namespace moe::flight {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Folder(const std::string& name) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR") ? std::getenv("TEST_TMPDIR") : "/tmp") + "/flight_" + name;
  std::filesystem::remove_all(path);
  return path;
}

std::unique_ptr<FlightRecorder> Rank(const std::string& dir, int64_t rank, int64_t world = 4) { return FlightRecorder::Make(dir, rank, world, 0, LogSink()); }

Record Op(int64_t group, int64_t sequence, MessageKind kind, const char* what, int64_t count = 8) {
  Record r;
  r.group = group;
  r.sequence = sequence;
  r.kind = static_cast<uint8_t>(kind);
  r.count = count;
  std::snprintf(r.what, sizeof(r.what), "%s", what);
  return r;
}

// Posts, and ends when `done`.
void Do(FlightRecorder* r, Record op, bool done = true) {
  r->Post(&op);
  if (done) r->Done(&op, r->Now(), true);
}

std::string ReportOf(const std::string& dir) {
  const auto ranks = ReadFlights(dir);
  EXPECT_TRUE(ranks.ok()) << ranks.status();
  return ranks.ok() ? Report(*ranks) : "";
}

TEST(FlightRecorder, KeepsTheLastOperations) {
  const std::string dir = Folder("ring");
  auto r = Rank(dir, 1);
  r->AddGroup(7, 1, {0, 1, 3});
  for (int64_t i = 0; i < kRecords + 100; ++i) Do(r.get(), Op(7, i, MessageKind::kAllReduce, "sum"), i % 2 == 0);
  const auto ranks = ReadFlights(dir);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  ASSERT_EQ(ranks->size(), 1u);
  const RankFlight& f = ranks->front();
  EXPECT_EQ(f.rank, 1);
  EXPECT_EQ(f.process, Process::kRunning);
  EXPECT_EQ(f.num_operations, kRecords + 100);
  ASSERT_EQ(f.records.size(), static_cast<size_t>(kRecords));
  for (int64_t i = 0; i < kRecords; ++i) {
    EXPECT_EQ(f.records[i].index, i + 100);
    EXPECT_EQ(f.records[i].state, i % 2 == 0 ? OpState::kDone : OpState::kPosted);
    EXPECT_EQ(f.records[i].done > 0, i % 2 == 0);
  }
  ASSERT_EQ(f.groups.count(7), 1u);
  EXPECT_EQ(f.groups.at(7).members, (std::vector<int64_t>{0, 1, 3}));
}

TEST(FlightRecorder, AnEndThatComesAfterTheRingHasTurnedIsNotWritten) {
  auto r = Rank("", 0);
  Record slow = Op(1, 0, MessageKind::kAllReduce, "slow");
  r->Post(&slow);
  for (int64_t i = 0; i < kRecords; ++i) Do(r.get(), Op(1, i + 1, MessageKind::kAllReduce, "fast"));
  r->Done(&slow, 0, true);
  Record there;
  std::memcpy(&there, r->file().slots[0].words, sizeof(there));
  EXPECT_EQ(there.index, kRecords);
}

// Reading while it is written gives whole records.
TEST(FlightRecorder, ReadersSeeWholeRecords) {
  const std::string dir = Folder("race");
  auto r = Rank(dir, 0);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (int64_t i = 0; !stop; ++i) Do(r.get(), Op(i, i, MessageKind::kAllReduce, std::to_string(i).c_str(), i));
  });
  for (int round = 0; round < 50; ++round) {
    const auto ranks = ReadFlights(dir);
    ASSERT_TRUE(ranks.ok());
    for (const Record& record : ranks->front().records) {
      ASSERT_EQ(record.group, record.count);
      ASSERT_EQ(record.what, std::to_string(record.count));
    }
  }
  stop = true;
  writer.join();
}

// Over more than a tie and the start, where the rate is not known yet.
TEST(TickClock, IsTheMonotonicClock) {
  TickClock clock;
  const int64_t end = TickClock::Monotonic() + 400'000'000;
  int64_t worst = 0;
  for (int64_t now = 0; now < end;) {
    const int64_t before = TickClock::Monotonic(), ticks = clock.Now();
    now = TickClock::Monotonic();
    worst = std::max({worst, before - ticks, ticks - now});
  }
  EXPECT_LT(worst, 20'000) << "ns off";
}

TEST(FlightRecorder, WithoutAFolderItWorksAndSaysSo) {
  std::string said;
  auto r = FlightRecorder::Make("/proc/no/such/folder", 0, 2, 0, [&](LogLevel, const std::string& text) { said = text; });
  Do(r.get(), Op(1, 0, MessageKind::kBarrier, ""));
  EXPECT_THAT(said, HasSubstr("/proc/no/such/folder"));
}

TEST(ReadFlights, RefusesWhatIsNoRecord) {
  const std::string dir = Folder("bad");
  EXPECT_TRUE(absl::IsNotFound(ReadFlights(dir).status()));
  std::filesystem::create_directory(dir);
  EXPECT_TRUE(absl::IsNotFound(ReadFlights(dir).status()));
  std::ofstream(dir + "/rank-0.flight") << "short";
  EXPECT_TRUE(absl::IsDataLoss(ReadFlights(dir).status()));
  std::ofstream(dir + "/rank-0.flight") << std::string(sizeof(File), 'x');
  EXPECT_TRUE(absl::IsDataLoss(ReadFlights(dir).status()));
}

// A rank in a process of its own, which does `f` and then waits to be killed.
pid_t Child(const std::function<void()>& f) {
  int ready[2];
  EXPECT_EQ(pipe(ready), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    f();
    const char byte = 1;
    (void)!write(ready[1], &byte, 1);
    for (;;) pause();
  }
  char byte;
  EXPECT_EQ(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  close(ready[1]);
  return pid;
}

TEST(Report, NamesAKilledAndAStoppedRankAndWhoWaits) {
  const std::string dir = Folder("killed");
  auto zero = Rank(dir, 0, 2);
  zero->AddGroup(5, 0, {0, 1});
  for (int64_t i = 0; i < 3; ++i) Do(zero.get(), Op(5, i, MessageKind::kAllReduce, "gradient norm"));
  const pid_t pid = Child([&] {
    static auto one = Rank(dir, 1, 2);
    one->AddGroup(5, 1, {0, 1});
    for (int64_t i = 0; i < 3; ++i) Do(one.get(), Op(5, i, MessageKind::kAllReduce, "gradient norm"));
  });
  Do(zero.get(), Op(5, 3, MessageKind::kAllToAllV, "layers.3.moe dispatch"), false);
  std::string report = ReportOf(dir);
  EXPECT_THAT(report, HasSubstr("rank 0 waits for rank 1 in operation 3 of group 5 (ranks 0, 1), all_to_all_v"));
  EXPECT_THAT(report, HasSubstr("layers.3.moe dispatch"));
  EXPECT_THAT(report, HasSubstr("It began with rank 1: running, process"));
  EXPECT_THAT(report, HasSubstr("operation 2 of group 5"));
  int status;
  ASSERT_EQ(kill(pid, SIGSTOP), 0);
  ASSERT_EQ(waitpid(pid, &status, WUNTRACED), pid);
  EXPECT_THAT(ReportOf(dir), HasSubstr(absl::StrCat("It began with rank 1: process ", pid, " is stopped")));
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_THAT(ReportOf(dir), HasSubstr(absl::StrCat("It began with rank 1: process ", pid, " is gone without a word")));
}

TEST(Report, FollowsTheChainToItsRoot) {
  const std::string dir = Folder("chain");
  std::vector<std::unique_ptr<FlightRecorder>> r;
  for (int64_t i = 0; i < 4; ++i) r.push_back(Rank(dir, i));
  // 0 waits for 1 in a group of two, 1 for 2 in a receive, 2 computes; 3 has left.
  for (int64_t i : {0, 1}) r[i]->AddGroup(1, i, {0, 1});
  for (int64_t i : {1, 2}) r[i]->AddGroup(2, i - 1, {1, 2});
  Do(r[2].get(), Op(2, 0, MessageKind::kBarrier, ""));
  Do(r[1].get(), Op(2, 0, MessageKind::kBarrier, ""));
  Do(r[0].get(), Op(1, 0, MessageKind::kAllReduce, "dense gradients"), false);
  Record receive = Op(2, -1, MessageKind::kRecv, "activation");
  receive.peer = 2;
  Do(r[1].get(), receive, false);
  r[3]->End(RankState::kLeft, "");
  const std::string report = ReportOf(dir);
  EXPECT_THAT(report, HasSubstr("rank 0 waits for rank 1 in operation 0 of group 1"));
  EXPECT_THAT(report, HasSubstr("rank 1 waits for rank 2 in an operation of group 2"));
  EXPECT_THAT(report, HasSubstr("It began with rank 2: running"));
  EXPECT_THAT(report, HasSubstr("(rank 0 waits for rank 1 waits for rank 2)"));
  EXPECT_THAT(report, HasSubstr("rank 3: left in good order"));
}

TEST(Report, SeesACircle) {
  const std::string dir = Folder("circle");
  auto zero = Rank(dir, 0, 2), one = Rank(dir, 1, 2);
  for (int64_t g : {1, 2}) {
    zero->AddGroup(g, 0, {0, 1});
    one->AddGroup(g, 1, {0, 1});
  }
  Do(zero.get(), Op(1, 0, MessageKind::kAllReduce, "dense gradients"), false);
  Do(one.get(), Op(2, 0, MessageKind::kAllReduce, "expert gradients"), false);
  EXPECT_THAT(ReportOf(dir), HasSubstr("It is a circle: rank 0 waits for rank 1 waits for rank 0. Groups must be used in the same order"));
}

TEST(Report, NamesTheFirstThatLeftTheCommonPath) {
  const std::string dir = Folder("parting");
  auto zero = Rank(dir, 0, 2), one = Rank(dir, 1, 2);
  for (auto* r : {&zero, &one}) {
    (*r)->AddGroup(9, r == &one, {0, 1});
    Do(r->get(), Op(9, 0, MessageKind::kAllReduce, "a"));
  }
  Do(zero.get(), Op(9, 1, MessageKind::kAllToAllV, "layers.2.moe dispatch"), false);
  Do(one.get(), Op(9, 1, MessageKind::kAllToAllV, "layers.3.moe dispatch"), false);
  for (auto* r : {&zero, &one}) (*r)->End(RankState::kFailed, "the deadline");
  const std::string report = ReportOf(dir);
  EXPECT_THAT(report, HasSubstr("ranks 0 and 1 left the common path in operation 1 of group 9"));
  EXPECT_THAT(report, HasSubstr("layers.2.moe dispatch"));
  EXPECT_THAT(report, HasSubstr("layers.3.moe dispatch"));
  EXPECT_THAT(report, HasSubstr("ended with: the deadline"));
}

TEST(Report, ARankThatNeverCame) {
  const std::string dir = Folder("missing");
  auto zero = Rank(dir, 0, 2);
  zero->AddGroup(1, 0, {0, 1});
  Do(zero.get(), Op(1, 0, MessageKind::kBarrier, ""), false);
  const std::string report = ReportOf(dir);
  EXPECT_THAT(report, HasSubstr("rank 1: has left no record"));
  EXPECT_THAT(report, HasSubstr("It began with rank 1"));
}

TEST(Report, NothingIsWrong) {
  const std::string dir = Folder("well");
  auto zero = Rank(dir, 0, 1);
  Do(zero.get(), Op(1, 0, MessageKind::kBarrier, ""));
  EXPECT_THAT(ReportOf(dir), HasSubstr("No rank waits for another"));
}

TEST(Trace, HasEveryOperation) {
  const std::string dir = Folder("trace");
  auto zero = Rank(dir, 0, 2), one = Rank(dir, 1, 2);
  for (auto* r : {&zero, &one}) {
    (*r)->AddGroup(3, 0, {0, 1});
    Do(r->get(), Op(3, 0, MessageKind::kAllReduce, "norm"));
    Do(r->get(), Op(3, 1, MessageKind::kBarrier, ""), false);
  }
  const auto ranks = ReadFlights(dir);
  ASSERT_TRUE(ranks.ok());
  const auto trace = nlohmann::json::parse(Trace(*ranks));
  int operations = 0;
  for (const auto& e : trace["traceEvents"]) {
    if (e["ph"] != "X") continue;
    ++operations;
    EXPECT_GE(e["ts"].get<double>(), 0);
    EXPECT_GE(e["dur"].get<double>(), 0);
    EXPECT_TRUE(e["name"] == "norm" || e["name"] == "barrier") << e;
  }
  EXPECT_EQ(operations, 4);
}

}  // namespace
}  // namespace moe::flight
