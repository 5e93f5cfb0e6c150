// Microseconds per all-to-all-v with agreed counts, as the MoE layer calls it: threads of one process and UCX lanes.
//   bench_alltoall [--ranks=2,4] [--lanes=inproc,posix+cma,posix,tcp] [--bytes=256,...] [--seconds=0.4]
// Prints the median and the 99th percentile over the calls of rank 0.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "core/base/status.h"
#include "transport/inproc/inproc.h"
#include "transport/ucx/ucx.h"

namespace moe {
namespace {

struct Timing {
  double median = 0, p99 = 0;
};

absl::StatusOr<Timing> Measure(Communicator* c, int64_t bytes, double seconds) {
  const int n = c->size();
  std::vector<char> send(n * bytes, 1), recv(n * bytes);
  std::vector<int64_t> counts(n, bytes), offsets;
  for (int i = 0; i < n; ++i) offsets.push_back(i * bytes);
  AllToAllV a;
  a.send = send.data();
  a.recv = recv.data();
  a.send_bytes = a.recv_bytes = counts;
  a.send_offsets = a.recv_offsets = offsets;
  a.counts_agreed = true;
  // Rank 0 decides how many calls fit into the time.
  int64_t calls = 20;
  for (int round = 0; round < 2; ++round) {
    const absl::Time start = absl::Now();
    for (int64_t i = 0; i < calls; ++i) MOE_RETURN_IF_ERROR(RunAllToAllV(c, a));
    const double each = absl::ToDoubleSeconds(absl::Now() - start) / static_cast<double>(calls);
    calls = std::clamp<int64_t>(static_cast<int64_t>((round == 0 ? 0.1 : 1.0) * seconds / each), 20, 200000);
    MOE_RETURN_IF_ERROR(Broadcast(c, &calls, sizeof(calls), 0));
  }
  std::vector<double> us;
  for (int64_t i = 0; i < calls; ++i) {
    const absl::Time start = absl::Now();
    MOE_RETURN_IF_ERROR(RunAllToAllV(c, a));
    us.push_back(absl::ToDoubleMicroseconds(absl::Now() - start));
  }
  std::sort(us.begin(), us.end());
  return Timing{us[us.size() / 2], us[us.size() * 99 / 100]};
}

absl::Status RunRank(Transport* t, const std::string& label, const std::vector<int64_t>& sizes, double seconds) {
  std::vector<int64_t> all;
  for (int64_t r = 0; r < t->world_size(); ++r) all.push_back(r);
  {
    MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(1, all));
    for (int64_t bytes : sizes) {
      MOE_ASSIGN_OR_RETURN(const Timing timing, Measure(c.get(), bytes, seconds));
      if (t->rank() == 0) {
        std::printf("%-10s %2ld ranks %8ld B/pair  median %10.1f us  p99 %10.1f us\n", label.c_str(), static_cast<long>(t->world_size()), static_cast<long>(bytes), timing.median, timing.p99);
        std::fflush(stdout);
      }
    }
  }
  return t->Shutdown();
}

int Report(const absl::Status& s) {
  if (s.ok()) return 0;
  std::fprintf(stderr, "%s\n", s.ToString().c_str());
  return 1;
}

int Inproc(int64_t ranks, const std::vector<int64_t>& sizes, double seconds) {
  auto world = std::make_shared<InprocWorld>(ranks);
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      auto t = MakeInprocTransport(world, r);
      Report(t.ok() ? RunRank(t->get(), "inproc", sizes, seconds) : t.status());
    });
  }
  for (std::thread& t : threads) t.join();
  return 0;
}

int Ucx(const std::string& lane, int64_t ranks, int port, const std::vector<int64_t>& sizes, double seconds) {
  for (int64_t r = 0; r < ranks; ++r) {
    if (fork() != 0) continue;
    UcxOptions ucx;
    ucx.tls = absl::StrCat(absl::StrReplaceAll(lane, {{"+", ","}}), ",self");
    RendezvousOptions rendezvous;
    rendezvous.port = port;
    rendezvous.job_id = "bench";
    rendezvous.rank = r;
    rendezvous.world_size = ranks;
    auto t = MakeUcxTransport(ucx, rendezvous, nullptr);
    const int status = Report(t.ok() ? RunRank(t->get(), lane, sizes, seconds) : t.status());
    std::fflush(stdout);
    _exit(status);
  }
  int bad = 0;
  for (int status = 0; wait(&status) > 0;) bad |= status;
  return bad == 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  std::string ranks = "2,4", lanes = "inproc,posix+cma,posix,tcp", bytes = "256,1024,4096,16384,65536,262144,1048576,4194304";
  double seconds = 0.4;
  for (int i = 1; i < argc; ++i) {
    const std::vector<std::string> word = absl::StrSplit(argv[i], absl::MaxSplits('=', 1));
    if (word.size() == 2 && word[0] == "--ranks") ranks = word[1];
    else if (word.size() == 2 && word[0] == "--lanes") lanes = word[1];
    else if (word.size() == 2 && word[0] == "--bytes") bytes = word[1];
    else if (word.size() == 2 && word[0] == "--seconds" && absl::SimpleAtod(word[1], &seconds)) continue;
    else {
      std::fprintf(stderr, "usage: %s [--ranks=2,4] [--lanes=inproc,posix+cma,posix,tcp] [--bytes=256,...] [--seconds=0.4]\n", argv[0]);
      return 2;
    }
  }
  std::vector<int64_t> sizes;
  for (absl::string_view b : absl::StrSplit(bytes, ',')) {
    sizes.emplace_back();
    if (!absl::SimpleAtoi(b, &sizes.back())) return 2;
  }
  int status = 0, port = 10000 + static_cast<int>(std::random_device()() % 8000);
  for (absl::string_view r : absl::StrSplit(ranks, ',')) {
    int64_t n = 0;
    if (!absl::SimpleAtoi(r, &n)) return 2;
    for (absl::string_view lane : absl::StrSplit(lanes, ',')) status |= lane == "inproc" ? Inproc(n, sizes, seconds) : Ucx(std::string(lane), n, ++port, sizes, seconds);
  }
  return status;
}

}  // namespace
}  // namespace moe

int main(int argc, char** argv) { return moe::Main(argc, argv); }
