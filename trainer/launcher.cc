#include "trainer/launcher.h"

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace moe::trainer {
namespace {

std::atomic<int> g_signals{0};   // the only state of a signal handler
static_assert(std::atomic<int>::is_always_lock_free);

void OnSignal(int) {
  if (g_signals.fetch_add(1) > 0) ::_exit(130);
}
void OnSignalInParent(int) { g_signals.fetch_add(1); }

void Handle(void (*handler)(int)) {
  struct sigaction a;
  std::memset(&a, 0, sizeof(a));
  a.sa_handler = handler;
  ::sigaction(SIGINT, &a, nullptr);
  ::sigaction(SIGTERM, &a, nullptr);
}

const char* Environment(std::initializer_list<const char*> names) {
  for (const char* n : names)
    if (const char* v = std::getenv(n)) return v;
  return nullptr;
}

// A place from a launch contract; world 0: none is there.
RankPlace FromEnvironment() {
  RankPlace p;
  p.world = 0;
  const bool mpi = std::getenv("OMPI_COMM_WORLD_RANK") != nullptr;
  const char* rank = mpi ? std::getenv("OMPI_COMM_WORLD_RANK") : std::getenv("RANK");
  const char* world = mpi ? std::getenv("OMPI_COMM_WORLD_SIZE") : std::getenv("WORLD_SIZE");
  if (rank == nullptr || world == nullptr) return p;
  if (!absl::SimpleAtoi(rank, &p.rank) || !absl::SimpleAtoi(world, &p.world)) { p.world = 0; return p; }
  p.local_world = p.world;
  if (const char* local = Environment({"OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE"})) (void)absl::SimpleAtoi(local, &p.local_world);
  if (const char* host = std::getenv("MASTER_ADDR")) p.host = host;
  // torchrun's own store listens on MASTER_PORT; the rendezvous takes the next one.
  if (const char* port = std::getenv("MASTER_PORT"); port && absl::SimpleAtoi(port, &p.port)) ++p.port;
  if (const char* job = Environment({"TORCHELASTIC_RUN_ID", "OMPI_MCA_ess_base_jobid"})) p.job_id = job;
  return p;
}

Result FreePort(int64_t* port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t n = sizeof(a);
  const bool ok = fd >= 0 && ::bind(fd, reinterpret_cast<sockaddr*>(&a), sizeof(a)) == 0 && ::getsockname(fd, reinterpret_cast<sockaddr*>(&a), &n) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (!ok) return Result::Failure(absl::StrCat("cannot find a free port: ", std::strerror(error)));
  *port = ntohs(a.sin_port);
  return {};
}

struct Child {
  pid_t pid = -1;
  int errors = -1;        // read end: what the rank says when it fails
  std::string message;
  bool running = false;
  int status = 0;
};

// The child's side: never returns.
[[noreturn]] void Exec(const Arguments& a, const RankPlace& p, const std::string& run, pid_t parent, int error_fd) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  ::setpgid(0, 0);   // the terminal's Ctrl-C goes to the parent alone, which passes it on once
  std::vector<std::string> words = {"moe"};
  words.insert(words.end(), a.original.begin(), a.original.end());
  words.push_back(absl::StrCat("--internal-rank=", p.rank, ",", p.world, ",", p.port, ",", error_fd));
  words.push_back(absl::StrCat("--internal-job=", p.job_id));
  words.push_back("run=" + run);
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  ::execv("/proc/self/exe", argv.data());
  ::_exit(127);
}

void ReadErrors(Child* c) {
  char block[4096];
  for (ssize_t n; (n = ::read(c->errors, block, sizeof(block))) != 0;) {
    if (n > 0) c->message.append(block, static_cast<size_t>(n));
    else if (errno != EINTR) break;
  }
}

// What to tell of a job whose ranks ended like this. The rank that died by a signal is the cause; else the messages, each once.
Result Verdict(std::vector<Child>& children, int64_t first_dead, bool interrupted) {
  Result r;
  std::vector<std::string> seen;
  for (size_t i = 0; i < children.size(); ++i) {
    const Child& c = children[i];
    const int code = WIFEXITED(c.status) ? WEXITSTATUS(c.status) : 1;
    if (code != 0 && r.exit_code == 0) r.exit_code = code == 2 || code == 130 ? code : 1;
    std::string text = c.message;
    if (text.empty()) continue;
    const std::string prefix = absl::StrCat("rank ", i, ": ");
    if (text.rfind(prefix, 0) == 0) text = text.substr(prefix.size());
    if (std::find(seen.begin(), seen.end(), text) != seen.end()) continue;
    seen.push_back(text);
  }
  if (first_dead >= 0) {
    const int signal = WTERMSIG(children[first_dead].status);
    r.exit_code = 1;
    r.message = absl::StrCat("rank ", first_dead, " was killed by signal ", signal, " (", ::strsignal(signal), "); the job ends. The newest checkpoint of the run is whole: go on with resume=true");
    return r;
  }
  if (interrupted) r.exit_code = 130;
  // Every rank tells the same of one cause; prefixes of other ranks are cut, so that the text stands once.
  for (const std::string& s : seen) {
    bool inside = false;
    for (const std::string& t : seen) inside = inside || (&s != &t && t.size() < s.size() && s.find(t) != std::string::npos);
    if (!inside) absl::StrAppend(&r.message, r.message.empty() ? "" : "\n", s);
  }
  if (r.exit_code != 0 && r.exit_code != 130 && r.message.empty()) r.message = "a rank failed without a message";
  return r;
}

Result RunChildren(const Arguments& a, const moe_config* config) {
  RankPlace place;
  place.world = GetInt(config, "ranks");
  place.port = GetInt(config, "transport.port");
  if (place.port == 0) MOE_TRY(FreePort(&place.port));
  const std::string run = GetText(config, "run");
  place.job_id = absl::StrCat(run, "-", ::getpid());
  Handle(OnSignalInParent);
  const pid_t parent = ::getpid();
  std::vector<Child> children(place.world);
  for (int64_t r = 0; r < place.world; ++r) {
    int fd[2];
    if (::pipe2(fd, O_CLOEXEC) != 0) return Result::Failure(absl::StrCat("cannot make a pipe: ", std::strerror(errno)));
    place.rank = r;
    const pid_t pid = ::fork();
    if (pid == 0) {
      const int keep = ::dup(fd[1]);   // without close-on-exec
      Exec(a, place, run, parent, keep);
    }
    ::close(fd[1]);
    if (pid < 0) {
      for (Child& c : children)
        if (c.running) ::kill(c.pid, SIGKILL);
      return Result::Failure(absl::StrCat("cannot start rank ", r, ": ", std::strerror(errno)));
    }
    ::fcntl(fd[0], F_SETFL, O_NONBLOCK);
    children[r].pid = pid;
    children[r].errors = fd[0];
    children[r].running = true;
  }
  using Clock = std::chrono::steady_clock;
  int forwarded = 0;
  int64_t first_dead = -1;   // the first that a signal ended which this process did not send, in whatever order they are reaped
  bool ended_here = false;   // those that stayed behind have been sent SIGKILL
  size_t running = children.size();
  Clock::time_point deadline = Clock::time_point::max();   // for those that stay behind after a failure
  while (running > 0) {
    const int signals = g_signals.load();
    if (signals > forwarded) {
      for (Child& c : children)
        if (c.running) ::kill(c.pid, signals > 1 ? SIGKILL : SIGINT);
      forwarded = signals;
    }
    if (Clock::now() > deadline) {
      ended_here = true;
      for (Child& c : children)
        if (c.running) ::kill(c.pid, SIGKILL);
    }
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, WNOHANG);
    if (pid > 0) {
      for (size_t i = 0; i < children.size(); ++i) {
        Child& c = children[i];
        if (c.pid != pid || !c.running) continue;
        c.running = false;
        c.status = status;
        --running;
        const bool failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
        if (failed && deadline == Clock::time_point::max()) {
          // The others learn of it over the control connection and end by themselves; nobody stays longer than this.
          deadline = Clock::now() + std::chrono::seconds(forwarded ? 30 : 8);
        }
        if (WIFSIGNALED(status) && !ended_here && first_dead < 0) first_dead = static_cast<int64_t>(i);
      }
      continue;
    }
    // Wakes up for output of a failing rank, for a signal (EINTR), and often enough to reap.
    std::vector<pollfd> fds;
    for (Child& c : children) {
      ReadErrors(&c);
      if (c.running) fds.push_back({c.errors, 0, 0});   // POLLHUP: the rank has ended
    }
    ::poll(fds.data(), fds.size(), 50);
  }
  for (Child& c : children) {
    ReadErrors(&c);
    ::close(c.errors);
  }
  if (forwarded > 1) return {130, "interrupted twice: ended at once", false};
  return Verdict(children, first_dead, forwarded > 0);
}

Result RunThreads(const moe_config* config, const RankFunction& f) {
  const int64_t world = GetInt(config, "ranks");
  moe_inproc* raw = nullptr;
  MOE_TRY(Check(moe_inproc_create(world, &raw)));
  Inproc inproc(raw);
  std::vector<Result> results(world);
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < world; ++r) {
    threads.emplace_back([&, r] {
      RankPlace p;
      p.rank = r;
      p.world = p.local_world = world;
      p.inproc = inproc.get();
      results[r] = f(p);
    });
  }
  for (std::thread& t : threads) t.join();
  // The shortest message of the worst kind is the one without other ranks' prefixes.
  Result worst;
  for (const Result& r : results)
    if (!r.ok() && (worst.ok() || (r.message.size() < worst.message.size() && !r.message.empty()))) worst = r;
  return worst;
}

// The place that a parent of this program has given.
bool FromParent(const Arguments& a, RankPlace* p, int* error_fd) {
  if (!a.Has("--internal-rank")) return false;
  long long rank = 0, world = 1, port = 0;
  int fd = 2;
  if (std::sscanf(a.flags.at("--internal-rank").c_str(), "%lld,%lld,%lld,%d", &rank, &world, &port, &fd) != 4) return false;
  p->rank = rank;
  p->world = p->local_world = world;
  p->port = port;
  p->job_id = a.Flag("--internal-job", "moe");
  *error_fd = fd;
  return true;
}

}  // namespace

bool StopRequested() { return g_signals.load() > 0; }

int64_t ForeignWorld() { return FromEnvironment().world; }

bool IsStartedRank(const Arguments& a) { return a.Has("--internal-rank") || FromEnvironment().world > 0; }

Result RunRanks(const Arguments& a, const moe_config* config, const RankFunction& f) {
  RankPlace place;
  int error_fd = 2;
  if (FromParent(a, &place, &error_fd)) {
    Handle(OnSignal);
    Result r = f(place);
    // The parent speaks for all ranks.
    if (!r.message.empty() && ::write(error_fd, r.message.data(), r.message.size()) >= 0) r.message.clear();
    return r;
  }
  place = FromEnvironment();
  if (place.world > 0) {
    Handle(OnSignal);
    Result r = f(place);
    if (!r.ok() && !r.message.empty()) r.message = absl::StrCat("rank ", place.rank, ": ", r.message);
    return r;
  }
  const int64_t ranks = GetInt(config, "ranks");
  if (ranks > 1 && GetText(config, "transport.kind") == "ucx") return RunChildren(a, config);
  Handle(OnSignal);
  if (ranks > 1) return RunThreads(config, f);
  return f(RankPlace());
}

}  // namespace moe::trainer
