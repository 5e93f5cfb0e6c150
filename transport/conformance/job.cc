#include "transport/conformance/job.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "absl/strings/numbers.h"
#include "transport/conformance/cases.h"
#include "transport/conformance/make_ucx.h"
#include "transport/self.h"

extern char** environ;

namespace moe::conformance {

const char* Name(Lane lane) { return lane == Lane::kInproc ? "Inproc" : lane == Lane::kShm ? "Shm" : "Tcp"; }

std::vector<int64_t> Rank::Everybody() const {
  std::vector<int64_t> all;
  for (int64_t r = 0; r < size; ++r) all.push_back(r);
  return all;
}

absl::StatusOr<std::unique_ptr<Transport>> Rank::Make() const {
  if (lane == Lane::kInproc) return MakeInprocTransport(world, rank);
  if (size == 1) return MakeSelfTransport();
  return MakeUcx(*this);
}

Case FindCase(const std::string& name) {
  for (const auto& cases : {LifeCases(), FailureCases(), DisagreementCases()}) {
    for (const NamedCase& c : cases) {
      if (name == c.name) return c.run;
    }
  }
  std::fprintf(stderr, "no case %s\n", name.c_str());
  std::abort();
}

std::string Failures(const std::vector<Result>& results) {
  std::string text;
  for (size_t r = 0; r < results.size(); ++r) {
    const Result& x = results[r];
    if (!x.exited && x.signal == 0) absl::StrAppend(&text, "rank ", r, ": HANG (killed at the deadline) ", x.error, "\n");
    else if (x.signal != 0) absl::StrAppend(&text, "rank ", r, ": signal ", x.signal, " ", x.error, "\n");
    else if (!x.error.empty()) absl::StrAppend(&text, "rank ", r, ": ", x.error, "\n");
  }
  return text;
}

int FreePort() {
  // Below the range that the kernel gives to outgoing connections, so that it stays free until the job binds it.
  static unsigned next = std::random_device()();  // process ids are not unique across sandboxes
  for (int tries = 0; tries < 1000; ++tries) {
    const int port = 18000 + static_cast<int>(next++ % 14000);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    a.sin_port = htons(static_cast<uint16_t>(port));
    const bool free = bind(fd, reinterpret_cast<sockaddr*>(&a), sizeof(a)) == 0;
    close(fd);
    if (free) return port;
  }
  std::abort();
}

namespace {

std::vector<Result> RunThreads(const Job& job) {
  std::vector<Result> results(job.size);
  auto world = std::make_shared<InprocWorld>(job.size, job.timeout);
  std::vector<std::thread> threads;
  std::atomic<int> running{0};
  const Case run = FindCase(job.name);
  for (int64_t r = 0; r < job.size; ++r) {
    results[r].exited = true;
    if (std::count(job.absent.begin(), job.absent.end(), r)) continue;
    ++running;
    threads.emplace_back([&, r] {
      Rank rank;
      rank.lane = job.lane;
      rank.rank = r;
      rank.size = job.size;
      rank.timeout = job.timeout;
      rank.world = world;
      const absl::Status s = run(rank);
      if (!s.ok()) results[r].error = s.ToString();
      --running;
    });
  }
  const absl::Time deadline = absl::Now() + job.deadline;
  while (running > 0) {
    if (absl::Now() > deadline) {
      // Threads cannot be killed: say it and end the process.
      std::fprintf(stderr, "HANG: case %s, %ld ranks as threads\n", job.name.c_str(), static_cast<long>(job.size));
      std::abort();
    }
    poll(nullptr, 0, 1);
  }
  for (std::thread& t : threads) t.join();
  return results;
}

struct Child {
  pid_t pid = -1;
  int pidfd = -1, out = -1;
};

std::vector<Result> RunProcesses(const Job& job) {
  std::vector<Result> results(job.size);
  std::vector<Child> children(job.size);
  const int port = job.port != 0 ? job.port : FreePort();
  for (int64_t r = 0; r < job.size; ++r) {
    if (std::count(job.absent.begin(), job.absent.end(), r)) {
      results[r].exited = true;
      continue;
    }
    int pipe_fd[2];
    if (pipe2(pipe_fd, O_CLOEXEC) != 0) std::abort();
    std::vector<std::string> args = {"/proc/self/exe", "--conformance_child", absl::StrCat(static_cast<int>(job.lane)), absl::StrCat(r), absl::StrCat(job.size),
                                     absl::StrCat(port), absl::StrCat(absl::ToInt64Milliseconds(job.timeout)), job.name};
    std::vector<char*> argv;
    for (std::string& a : args) argv.push_back(a.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipe_fd[1], 1);
    posix_spawn_file_actions_adddup2(&actions, pipe_fd[1], 2);
    if (posix_spawn(&children[r].pid, "/proc/self/exe", &actions, nullptr, argv.data(), environ) != 0) std::abort();
    posix_spawn_file_actions_destroy(&actions);
    close(pipe_fd[1]);
    children[r].out = pipe_fd[0];
    children[r].pidfd = static_cast<int>(syscall(SYS_pidfd_open, children[r].pid, 0));
  }
  const absl::Time deadline = absl::Now() + job.deadline;
  for (;;) {
    std::vector<pollfd> fds;
    std::vector<int64_t> whose;
    bool only_stopped = true;
    for (int64_t r = 0; r < job.size; ++r) {
      if (children[r].pid < 0) continue;
      if (!std::count(job.stopped.begin(), job.stopped.end(), r)) only_stopped = false;
      fds.push_back({children[r].pidfd, POLLIN, 0});
      whose.push_back(r);
      fds.push_back({children[r].out, POLLIN, 0});
      whose.push_back(r);
    }
    if (fds.empty()) break;
    if (only_stopped || absl::Now() > deadline) {
      for (Child& c : children) {
        if (c.pid > 0) kill(c.pid, SIGKILL);
      }
    }
    poll(fds.data(), fds.size(), 200);
    for (size_t i = 0; i < fds.size(); i += 2) {
      const int64_t r = whose[i];
      Child& c = children[r];
      char text[4096];
      if (fds[i + 1].revents & POLLIN) {
        const ssize_t n = read(c.out, text, sizeof(text));
        if (n > 0) results[r].error.append(text, n);
      }
      if ((fds[i].revents & POLLIN) == 0) continue;
      siginfo_t info{};
      if (waitid(P_PID, c.pid, &info, WEXITED) != 0) std::abort();
      fcntl(c.out, F_SETFL, O_NONBLOCK);  // a grandchild may hold the other end
      for (ssize_t n; (n = read(c.out, text, sizeof(text))) > 0;) results[r].error.append(text, n);
      close(c.out);
      close(c.pidfd);
      if (info.si_code == CLD_EXITED) {
        results[r].exited = true;
        if (info.si_status == 0) results[r].error.clear();
        else if (results[r].error.empty()) results[r].error = absl::StrCat("exit status ", info.si_status);
      } else if (absl::Now() <= deadline) {
        results[r].signal = info.si_status;
      }
      c.pid = -1;
    }
  }
  return results;
}

}  // namespace

std::vector<Result> RunJob(const Job& job) { return job.lane == Lane::kInproc ? RunThreads(job) : RunProcesses(job); }

int ChildMain(int argc, char** argv) {
  if (argc < 8 || std::strcmp(argv[1], "--conformance_child") != 0) return -1;
  Rank rank;
  int64_t lane = 0, timeout = 0, port = 0;
  if (!absl::SimpleAtoi(argv[2], &lane) || !absl::SimpleAtoi(argv[3], &rank.rank) || !absl::SimpleAtoi(argv[4], &rank.size) || !absl::SimpleAtoi(argv[5], &port) ||
      !absl::SimpleAtoi(argv[6], &timeout)) {
    return 2;
  }
  rank.lane = static_cast<Lane>(lane);
  rank.port = static_cast<int>(port);
  rank.timeout = absl::Milliseconds(timeout);
  const absl::Status s = FindCase(argv[7])(rank);
  if (s.ok()) return 0;
  std::fprintf(stderr, "%s\n", s.ToString().c_str());
  return 1;
}

}  // namespace moe::conformance
