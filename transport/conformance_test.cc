// One suite for every transport: threads of a process, UCX over shared memory, UCX over TCP, with 1 to 4 ranks. Every case has a hard
// deadline, so a hang is a failure; the lane that was asked for is asserted.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include "absl/strings/str_cat.h"
#include "transport/conformance/job.h"
#include "transport/conformance/leftovers.h"
#include "transport/conformance/strangers.h"

// The leak checker follows thread-local storage of libraries that were loaded at run time and stumbles over UCX's. A start that fails
// leaves UCX's worker behind on purpose.
extern "C" const char* __asan_default_options() { return "intercept_tls_get_addr=0"; }
extern "C" const char* __lsan_default_suppressions() { return "leak:libucs.so\nleak:libucp.so\nleak:libuct.so\n"; }

namespace moe::conformance {
namespace {

class Conformance : public testing::TestWithParam<std::tuple<Lane, int64_t>> {
 protected:
  Lane lane() const { return std::get<0>(GetParam()); }
  int64_t size() const { return std::get<1>(GetParam()); }
  Job MakeJob(const std::string& name) const {
    Job job;
    job.lane = lane();
    job.size = size();
    job.name = name;
    return job;
  }
  void ExpectOk(const Job& job) { EXPECT_EQ(Failures(RunJob(job)), ""); }
  void ExpectOk(const std::string& name) { ExpectOk(MakeJob(name)); }
};

TEST_P(Conformance, Lanes) { ExpectOk("Lanes"); }
TEST_P(Conformance, Data) { ExpectOk("Data"); }
TEST_P(Conformance, StartStopStart) { ExpectOk("StartStopStart"); }
TEST_P(Conformance, Forked) { ExpectOk("Forked"); }

// What needs somebody else.
class Together : public Conformance {};

TEST_P(Together, DifferentOperations) { ExpectOk("DifferentOperations"); }
TEST_P(Together, Counts) { ExpectOk("Counts"); }
TEST_P(Together, WrongLength) { ExpectOk("WrongLength"); }
TEST_P(Together, WrongArgument) { ExpectOk("WrongArgument"); }
TEST_P(Together, WrongMembers) { ExpectOk("WrongMembers"); }
TEST_P(Together, AbortFromThread) { ExpectOk("AbortFromThread"); }
TEST_P(Together, AbortGroup) { ExpectOk("AbortGroup"); }
TEST_P(Together, LeaveAfterLast) { ExpectOk("LeaveAfterLast"); }
TEST_P(Together, LeaveWithoutShutdown) { ExpectOk("LeaveWithoutShutdown"); }

// Deadlines are the same code for all lanes and sizes; processes need seconds to start on a busy machine.
class Deadline : public Conformance {};

TEST_P(Deadline, AgreedAgainstOther) { ExpectOk("AgreedAgainstOther"); }
TEST_P(Deadline, OneCallMore) { ExpectOk("OneCallMore"); }

TEST_P(Deadline, OfGroupAndShutdown) {
  Job job = MakeJob("GroupMemberMissing");
  job.timeout = lane() == Lane::kInproc ? absl::Seconds(1) : absl::Seconds(3);
  ExpectOk(job);
  job.name = "ShutdownAlone";
  ExpectOk(job);
}

TEST_P(Deadline, NeverArrives) {
  Job job = MakeJob("NeverArrives");
  job.absent = {size() - 1};
  job.timeout = lane() == Lane::kInproc ? absl::Seconds(1) : absl::Seconds(3);
  ExpectOk(job);
}

TEST_P(Together, Death) {
  for (const char* name : {"DeathInBarrier", "DeathInMediumAllToAll", "DeathInAllToAll", "DeathIdle"}) {
    std::vector<Result> results = RunJob(MakeJob(name));
    if (lane() != Lane::kInproc) {
      EXPECT_EQ(results.back().signal, SIGKILL);
      results.pop_back();
    }
    EXPECT_EQ(Failures(results), "") << name;
  }
}

// What only processes can be: stopped; started with strangers about; started on a taken port.
class Processes : public Conformance {};

TEST_P(Processes, Stopped) {
  Job job = MakeJob("Stopped");
  job.stopped = {size() - 1};
  std::vector<Result> results = RunJob(job);
  EXPECT_EQ(results.back().signal, SIGKILL);  // by the harness, at the end
  results.pop_back();
  EXPECT_EQ(Failures(results), "");
}

TEST_P(Processes, DeathInStart) {
  const Leftovers leftovers;
  for (int i = 0; i < 4; ++i) {
    Job job = MakeJob("DeathInStart");
    job.port = FreePort();
    job.timeout = absl::Seconds(3);
    std::vector<Result> results = RunJob(job);
    EXPECT_EQ(results.back().signal, SIGKILL);
    results.pop_back();
    EXPECT_EQ(Failures(results), "") << "port " << job.port;
  }
}

TEST(Start, WithStrangersAtThePort) {
  Job job;
  job.lane = Lane::kShm;
  job.size = 3;
  job.name = "Lanes";
  job.port = FreePort();
  Strangers strangers(job.port, 20);
  EXPECT_EQ(Failures(RunJob(job)), "");
}

TEST(Start, WhereProcessVmIsForbidden) {
  Job job;
  job.lane = Lane::kShm;
  job.size = 3;
  job.name = "WithoutProcessVm";
  EXPECT_EQ(Failures(RunJob(job)), "");
}

TEST(Start, OnATakenPort) {
  Job job;
  job.lane = Lane::kShm;
  job.size = 2;
  job.name = "PortTaken";
  job.absent = {1};
  job.port = FreePort();
  const Listener listener(job.port);
  EXPECT_EQ(Failures(RunJob(job)), "");
}

std::string ParamName(const testing::TestParamInfo<std::tuple<Lane, int64_t>>& info) {
  return absl::StrCat(Name(std::get<0>(info.param)), std::get<1>(info.param));
}
constexpr Lane kLanes[] = {Lane::kInproc, Lane::kShm, Lane::kTcp};
using Param = std::tuple<Lane, int64_t>;
INSTANTIATE_TEST_SUITE_P(All, Conformance, testing::Combine(testing::ValuesIn(kLanes), testing::Range<int64_t>(1, 5)), ParamName);
INSTANTIATE_TEST_SUITE_P(All, Together, testing::Combine(testing::ValuesIn(kLanes), testing::Range<int64_t>(2, 5)), ParamName);
INSTANTIATE_TEST_SUITE_P(Some, Deadline,
                         testing::Values(Param{Lane::kInproc, 2}, Param{Lane::kInproc, 4}, Param{Lane::kShm, 3}, Param{Lane::kTcp, 3}), ParamName);
INSTANTIATE_TEST_SUITE_P(Some, Processes, testing::Values(Param{Lane::kShm, 2}, Param{Lane::kShm, 3}, Param{Lane::kTcp, 3}), ParamName);

}  // namespace
}  // namespace moe::conformance

int main(int argc, char** argv) {
#ifdef __SANITIZE_THREAD__
  setenv("UCX_MEM_MMAP_HOOK_MODE", "none", 1);  // UCX's hooks on mmap and the sanitizer's do not get along
#endif
  if (const int status = moe::conformance::ChildMain(argc, argv); status >= 0) return status;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
