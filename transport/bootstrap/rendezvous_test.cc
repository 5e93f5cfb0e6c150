// The meeting of ranks, with threads as ranks, and with strangers, old jobs, wrong versions and silence.
#include "transport/bootstrap/rendezvous.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <random>
#include <thread>

#include "transport/bootstrap/control_plane.h"
#include "transport/bootstrap/frame_socket.h"
#include "transport/bootstrap/hello.h"

namespace moe {
namespace {

using testing::HasSubstr;

int FreePort() {
  static unsigned next = std::random_device()();
  for (;;) {
    const int port = 18000 + static_cast<int>(next++ % 14000);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    a.sin_port = htons(static_cast<uint16_t>(port));
    const bool free = bind(fd, reinterpret_cast<sockaddr*>(&a), sizeof(a)) == 0;
    close(fd);
    if (free) return port;
  }
}

// A connected socket; waits until somebody listens.
int Dial(int port) {
  for (;;) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    a.sin_port = htons(static_cast<uint16_t>(port));
    if (connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof(a)) == 0) return fd;
    close(fd);
    poll(nullptr, 0, 1);
  }
}

class RendezvousTest : public testing::Test {
 protected:
  RendezvousOptions Options(int64_t rank, int64_t size) const {
    RendezvousOptions o;
    o.port = port_;
    o.job_id = "job";
    o.rank = rank;
    o.world_size = size;
    o.timeout = absl::Seconds(10);
    o.build_version = "1";
    return o;
  }
  using Made = absl::StatusOr<std::unique_ptr<ControlPlane>>;
  // Runs `ranks` as threads; `body` gets the result of each.
  void Run(const std::vector<RendezvousOptions>& ranks, const std::function<void(size_t, Made)>& body,
           const std::function<std::string(size_t)>& version = [](size_t) { return "UCX 1.13.1"; }) {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < ranks.size(); ++i) threads.emplace_back([&, i] { body(i, Rendezvous(ranks[i], version(i), nullptr)); });
    for (std::thread& t : threads) t.join();
  }
  std::vector<RendezvousOptions> All(int64_t size) const {
    std::vector<RendezvousOptions> all;
    for (int64_t r = 0; r < size; ++r) all.push_back(Options(r, size));
    return all;
  }

  const int port_ = FreePort();
};

void WaitForAllLeft(ControlPlane* c) {
  const absl::Time deadline = absl::Now() + absl::Seconds(10);
  while (absl::Now() < deadline) {
    for (const Notice& n : c->inbox()->Take()) {
      if (n.kind == Notice::Kind::kAllLeft) return;
      ADD_FAILURE() << n.status;
    }
    std::this_thread::yield();
  }
  ADD_FAILURE() << "not all left";
}

absl::Status WaitForFailure(ControlPlane* c) {
  const absl::Time deadline = absl::Now() + absl::Seconds(10);
  while (absl::Now() < deadline) {
    for (const Notice& n : c->inbox()->Take()) {
      if (n.kind == Notice::Kind::kFailAll) return n.status;
    }
    std::this_thread::yield();
  }
  return absl::OkStatus();
}

TEST_F(RendezvousTest, MeetGatherLeave) {
  Run(All(5), [](size_t rank, Made made) {
    ASSERT_TRUE(made.ok()) << made.status();
    for (int round = 0; round < 3; ++round) {
      auto all = (*made)->AllGather(std::string(rank * 1000 + round, static_cast<char>('a' + rank)), absl::Now() + absl::Seconds(10));
      ASSERT_TRUE(all.ok()) << all.status();
      ASSERT_EQ(all->size(), 5u);
      for (size_t r = 0; r < 5; ++r) EXPECT_EQ((*all)[r], std::string(r * 1000 + round, static_cast<char>('a' + r)));
    }
    (*made)->Leave();
    WaitForAllLeft(made->get());
    (*made)->Close(true);
  });
}

TEST_F(RendezvousTest, MissingRanksAreListedOnAllRanks) {
  std::vector<RendezvousOptions> here = {Options(0, 6), Options(2, 6), Options(5, 6)};
  for (auto& o : here) o.timeout = absl::Milliseconds(700);
  here[1].timeout = absl::Milliseconds(300);  // rank 0's word counts once it is met
  Run(here, [](size_t, Made made) {
    EXPECT_EQ(made.status().code(), absl::StatusCode::kDeadlineExceeded) << made.status();
    EXPECT_THAT(std::string(made.status().message()), HasSubstr("missing ranks: 1, 3, 4"));
    EXPECT_EQ(GetFailureInfo(made.status()).failed_ranks, (std::vector<int64_t>{1, 3, 4}));
  });
}

TEST_F(RendezvousTest, RankZeroMissing) {
  RendezvousOptions o = Options(1, 2);
  o.timeout = absl::Milliseconds(300);
  const Made made = Rendezvous(o, "UCX", nullptr);
  EXPECT_EQ(made.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(made.status().message()), HasSubstr("missing ranks: 0"));
  EXPECT_THAT(std::string(made.status().message()), HasSubstr("Connection refused"));
}

TEST_F(RendezvousTest, TwoVersionsAreRefusedOnAllRanks) {
  Run(All(4), [](size_t, Made made) {
    EXPECT_EQ(made.status().code(), absl::StatusCode::kFailedPrecondition) << made.status();
    EXPECT_THAT(std::string(made.status().message()), HasSubstr("rank 2 has transport UCX 1.22.0, rank 0 has UCX 1.13.1"));
  }, [](size_t rank) { return rank == 2 ? "UCX 1.22.0" : "UCX 1.13.1"; });
}

TEST_F(RendezvousTest, OtherMismatches) {
  for (int what = 0; what < 2; ++what) {
    std::vector<RendezvousOptions> all = All(3);
    if (what == 0) all[1].world_size = 4;
    if (what == 1) all[1].build_version = "2";
    Run(all, [&](size_t, Made made) {
      EXPECT_EQ(made.status().code(), absl::StatusCode::kFailedPrecondition) << made.status();
      EXPECT_THAT(std::string(made.status().message()), HasSubstr(what == 0 ? "world size 4, rank 0 has 3" : "build 2, rank 0 has 1"));
    });
  }
}

// A process of another job, of an earlier epoch, and a second rank 1: each is refused with the reason, and the job forms.
TEST_F(RendezvousTest, StrangersOfOurKind) {
  std::vector<RendezvousOptions> all = All(3);
  std::thread late([&] {  // rank 2 comes when the strangers have been refused
    RendezvousOptions old_job = Options(1, 3), old_epoch = Options(2, 3), twin = Options(1, 3);
    old_job.job_id = "yesterday";
    old_epoch.epoch = -1;
    absl::Status s = Rendezvous(old_job, "UCX 1.13.1", nullptr).status();
    EXPECT_EQ(s.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(s.message()), HasSubstr("\"yesterday\" came to the rendezvous of job \"job\""));
    s = Rendezvous(old_epoch, "UCX 1.13.1", nullptr).status();
    EXPECT_THAT(std::string(s.message()), HasSubstr("epoch -1"));
    const auto leave = [](ControlPlane* c) {
      c->Leave();
      WaitForAllLeft(c);
      c->Close(true);
    };
    std::vector<std::thread> twins;
    std::atomic<int> refused{0}, in{0};
    for (int i = 0; i < 2; ++i) {
      twins.emplace_back([&] {
        Made m = Rendezvous(twin, "UCX 1.13.1", nullptr);
        if (m.ok()) {
          ++in;
          return leave(m->get());
        }
        EXPECT_THAT(std::string(m.status().message()), HasSubstr("rank 1 is here already"));
        ++refused;
        Made two = Rendezvous(all[2], "UCX 1.13.1", nullptr);  // now the last one may come
        ASSERT_TRUE(two.ok()) << two.status();
        leave(two->get());
      });
    }
    for (std::thread& t : twins) t.join();
    EXPECT_EQ(in, 1);
    EXPECT_EQ(refused, 1);
  });
  Made root = Rendezvous(all[0], "UCX 1.13.1", nullptr);
  ASSERT_TRUE(root.ok()) << root.status();
  (*root)->Leave();
  late.join();
  WaitForAllLeft(root->get());
  (*root)->Close(true);
}

// Garbage, half a greeting, silence, a flood of connections: the job still forms, at once.
TEST_F(RendezvousTest, StrangersOfOtherKinds) {
  std::vector<int> fds;
  std::thread strangers([&] {
    const std::string garbage(5000, 'x'), http = "GET / HTTP/1.0\r\n\r\n", half("MoE1\x01\x00", 6);
    for (int i = 0; i < 200; ++i) {
      fds.push_back(Dial(port_));
      const std::string& text = i % 4 == 0 ? garbage : i % 4 == 1 ? http : i % 4 == 2 ? half : "";
      if (!text.empty()) send(fds.back(), text.data(), text.size(), MSG_NOSIGNAL);
    }
    // A frame that claims to be enormous.
    const uint64_t header[2] = {uint64_t{1} << 32 | 0x31456f4d, uint64_t{1} << 60};
    fds.push_back(Dial(port_));
    send(fds.back(), header, sizeof(header), MSG_NOSIGNAL);
    const absl::Time start = absl::Now();
    Made peer = Rendezvous(Options(1, 2), "UCX 1.13.1", nullptr);
    ASSERT_TRUE(peer.ok()) << peer.status();
    EXPECT_LT(absl::Now() - start, absl::Seconds(3));
    (*peer)->Leave();
    WaitForAllLeft(peer->get());
    (*peer)->Close(true);
  });
  Made root = Rendezvous(Options(0, 2), "UCX 1.13.1", nullptr);
  ASSERT_TRUE(root.ok()) << root.status();
  (*root)->Leave();
  WaitForAllLeft(root->get());
  (*root)->Close(true);
  strangers.join();
  for (int fd : fds) close(fd);
}

TEST_F(RendezvousTest, PortTaken) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  a.sin_port = htons(static_cast<uint16_t>(port_));
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&a), sizeof(a)), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  const absl::Status s = Rendezvous(Options(0, 2), "UCX", nullptr).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(s.message()), HasSubstr("transport.port " + std::to_string(port_)));
  EXPECT_THAT(std::string(s.message()), HasSubstr("choose another port"));
  close(fd);
}

TEST_F(RendezvousTest, WrongOptions) {
  RendezvousOptions o = Options(0, 2);
  o.port = 0;
  EXPECT_THAT(std::string(Rendezvous(o, "", nullptr).status().message()), HasSubstr("transport.port is 0"));
  o = Options(2, 2);
  EXPECT_THAT(std::string(Rendezvous(o, "", nullptr).status().message()), HasSubstr("rank is 2"));
  o = Options(0, 2);
  o.host = "no.such.host.invalid";
  EXPECT_THAT(std::string(Rendezvous(o, "", nullptr).status().message()), HasSubstr("transport.host \"no.such.host.invalid\""));
}

std::unique_ptr<FrameSocket> SayHello(int port, const RendezvousOptions& o) {
  auto s = std::make_unique<FrameSocket>(Dial(port));
  EXPECT_TRUE(s->Write(FrameType::kHello, Encode(MakeHello(o, "UCX 1.13.1"))).ok());
  return s;
}

TEST_F(RendezvousTest, DeathBeforeAllAreThere) {
  std::vector<RendezvousOptions> here = {Options(0, 4), Options(1, 4)};
  std::thread victim([&] {
    auto s = SayHello(port_, Options(2, 4));
    Frame welcome;
    while (!s->Next(&welcome)) {
      ASSERT_TRUE(s->Read().ok());
      std::this_thread::yield();
    }
    EXPECT_EQ(welcome.type, FrameType::kWelcome);
  });
  const absl::Time start = absl::Now();
  Run(here, [](size_t, Made made) {
    EXPECT_EQ(made.status().code(), absl::StatusCode::kUnavailable) << made.status();
    EXPECT_THAT(std::string(made.status().message()), HasSubstr("rank 2 died during the rendezvous"));
  });
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  victim.join();
}

// A rank that is there but says nothing, as after SIGSTOP or on a machine that was cut off.
TEST_F(RendezvousTest, SilenceIsDeath) {
  std::vector<RendezvousOptions> here = {Options(0, 3), Options(1, 3)};
  for (auto& o : here) o.heartbeat = absl::Milliseconds(500);
  auto silent = std::thread([&] {
    auto s = SayHello(port_, Options(2, 3));
    pollfd p{s->fd(), POLLIN, 0};
    while (poll(&p, 1, 10000) > 0 && s->Read().ok()) {
    }
  });
  const absl::Time start = absl::Now();
  Run(here, [](size_t, Made made) {
    ASSERT_TRUE(made.ok()) << made.status();
    const absl::Status s = WaitForFailure(made->get());
    EXPECT_EQ(s.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(s.message()), HasSubstr("rank 2 died (no heartbeat for 500ms"));
    EXPECT_EQ(GetFailureInfo(s).failed_ranks, std::vector<int64_t>{2});
  });
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  silent.join();
}

TEST_F(RendezvousTest, DeathOfRankZeroIsSeenByAll) {
  std::vector<RendezvousOptions> peers = {Options(1, 3), Options(2, 3)};
  auto root = std::make_unique<std::thread>([&] {
    Made made = Rendezvous(Options(0, 3), "UCX 1.13.1", nullptr);
    ASSERT_TRUE(made.ok());
    (*made).reset();
  });
  Run(peers, [](size_t, Made made) {
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_THAT(std::string(WaitForFailure(made->get()).message()), HasSubstr("rank 0 left without Shutdown"));
    auto all = (*made)->AllGather("x", absl::Now() + absl::Seconds(5));
    EXPECT_EQ(all.status().code(), absl::StatusCode::kUnavailable);
  });
  root->join();
}

TEST_F(RendezvousTest, GatherDeadlineNamesWhoIsMissing) {
  Run(All(3), [](size_t rank, Made made) {
    ASSERT_TRUE(made.ok()) << made.status();
    absl::Status s;
    if (rank == 2) s = WaitForFailure(made->get());
    else s = (*made)->AllGather("x", absl::Now() + absl::Milliseconds(300)).status();
    EXPECT_EQ(s.code(), absl::StatusCode::kDeadlineExceeded) << s;
    EXPECT_THAT(std::string(s.message()), HasSubstr("missing ranks: 2"));
  });
}

}  // namespace
}  // namespace moe
