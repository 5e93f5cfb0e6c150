// A job's life in good order: lanes, data, leaving, starting again, fork.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "transport/conformance/cases.h"

namespace moe::conformance {
namespace {

// The last operation's data still arrive when their sender leaves at once, and its receivers take their time.
absl::Status LeaveAfterLast(const Rank& rank) {
  MOE_ASSIGN_OR_RETURN(auto t, rank.Make());
  MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(1, rank.Everybody()));
  std::vector<std::vector<char>> data;
  for (int64_t bytes : {10, 5000, 60000, 2000000}) data.emplace_back(bytes);
  if (rank.rank == 0) {
    std::vector<WorkPtr> sends;
    for (auto& d : data) FillPattern(d.size(), d.data(), static_cast<int64_t>(d.size()));
    for (int64_t to = 1; to < rank.size; ++to) {
      for (auto& d : data) {
        MOE_ASSIGN_OR_RETURN(WorkPtr w, c->PostSend(d.data(), static_cast<int64_t>(d.size()), static_cast<int>(to), 1));
        sends.push_back(std::move(w));
      }
    }
    for (WorkPtr& w : sends) MOE_RETURN_IF_ERROR(w->Wait());
  } else {
    // Long enough on its own for rank 0 to be in Shutdown when the small messages are asked for.
    volatile double x = 1;
    for (int i = 0; i < 20000000; ++i) x = x * 1.0000001;
    for (auto& d : data) {
      MOE_RETURN_IF_ERROR(Recv(c.get(), d.data(), static_cast<int64_t>(d.size()), 0, 1));
      MOE_CHECK_THAT(FindWrongByte(d.size(), d.data(), static_cast<int64_t>(d.size())) < 0);
    }
  }
  return t->Shutdown();
}

absl::Status StartStopStart(const Rank& rank) {
  for (int i = 0; i < 3; ++i) {
    Rank again = rank;
    if (rank.lane == Lane::kInproc && i > 0) return absl::OkStatus();  // a world is for one job
    MOE_ASSIGN_OR_RETURN(auto t, again.Make());
    MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(1, rank.Everybody()));
    int64_t sum = 1;
    MOE_RETURN_IF_ERROR(AllReduce(c.get(), &sum, 1, DType::kI64));
    MOE_CHECK_THAT(sum == rank.size);
    MOE_RETURN_IF_ERROR(t->Shutdown());
    MOE_RETURN_IF_ERROR(ExpectError(Barrier(c.get()), absl::StatusCode::kFailedPrecondition, {"shut down"}));
  }
  return absl::OkStatus();
}

// A child after fork is told so, and its end does not disturb the job.
absl::Status Forked(const Rank& rank) {
  MOE_ASSIGN_OR_RETURN(auto t, rank.Make());
  MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(1, rank.Everybody()));
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a hang is a failure
    const bool told = Barrier(c.get()).code() == absl::StatusCode::kFailedPrecondition &&
                      t->CreateGroup(2, rank.Everybody()).status().code() == absl::StatusCode::kFailedPrecondition &&
                      t->Shutdown().code() == absl::StatusCode::kFailedPrecondition;
    c.reset();
    t.reset();
    _exit(told ? 0 : 1);
  }
  int status = -1;
  MOE_CHECK_THAT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, "child ", status);
  MOE_RETURN_IF_ERROR(Barrier(c.get()));
  return t->Shutdown();
}

absl::Status Lanes(const Rank& rank) {
  MOE_ASSIGN_OR_RETURN(auto t, rank.Make());
  const std::vector<std::string> lines = t->DescribePeers();
  MOE_CHECK_THAT(static_cast<int64_t>(lines.size()) == rank.size - 1);
  for (const std::string& line : lines) {
    const bool shm = line.find("posix+cma (shared memory)") != std::string::npos, tcp = line.find("tcp lo") != std::string::npos;
    const bool warns = line.find("WARNING") != std::string::npos;
    if (rank.lane == Lane::kInproc) MOE_CHECK_THAT(line.find("memory of this process") != std::string::npos, line);
    if (rank.lane == Lane::kShm) MOE_CHECK_THAT(shm && !tcp && !warns, line);
    if (rank.lane == Lane::kTcp) MOE_CHECK_THAT(tcp && !shm && warns, line);
  }
  return t->Shutdown();
}

// Where a process may not read another's memory (containers): slower, not broken.
absl::Status WithoutProcessVm(const Rank& rank) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{static_cast<unsigned short>(std::size(filter)), filter};
  MOE_CHECK_THAT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0);
  MOE_ASSIGN_OR_RETURN(auto t, rank.Make());
  for (const std::string& line : t->DescribePeers()) MOE_CHECK_THAT(line.find("posix (shared memory)") != std::string::npos, line);
  for (const NamedDataCase& c : AllToAllCases()) {
    if (std::string(c.name) == "EverySize") MOE_RETURN_IF_ERROR(c.run(t.get(), 100));
  }
  return t->Shutdown();
}

// All data cases in one job.
absl::Status Data(const Rank& rank) {
  MOE_ASSIGN_OR_RETURN(auto t, rank.Make());
  int64_t id = 1000;
  for (const auto& cases : {AllToAllCases(), CollectiveCases(), OrderCases()}) {
    for (const NamedDataCase& c : cases) {
      MOE_RETURN_IF_ERROR(Annotate(c.run(t.get(), id), c.name));
      id += 100;
    }
  }
  return t->Shutdown();
}

}  // namespace

std::vector<NamedCase> LifeCases() {
  return {{"LeaveAfterLast", LeaveAfterLast}, {"StartStopStart", StartStopStart}, {"Forked", Forked}, {"Lanes", Lanes}, {"WithoutProcessVm", WithoutProcessVm}, {"Data", Data}};
}

}  // namespace moe::conformance
