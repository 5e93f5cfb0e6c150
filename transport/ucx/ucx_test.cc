// What of UCX does not need a job: loading it, what it must not change, probes, and the reading of its lanes. Jobs are in
// transport/conformance_test.cc.
#include "transport/ucx/ucx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <map>
#include <thread>

#include "transport/ucx/host.h"
#include "transport/ucx/lanes.h"
#include "transport/ucx/profile.h"
#include "transport/ucx/ucx_p2p.h"

// The leak checker follows thread-local storage of libraries that were loaded at run time and stumbles over UCX's.
extern "C" const char* __asan_default_options() { return "intercept_tls_get_addr=0"; }
// A worker that never was connected is left behind on purpose.
extern "C" const char* __lsan_default_suppressions() { return "leak:libucs.so\nleak:libucp.so\n"; }

namespace moe {
namespace {

using testing::HasSubstr;

std::map<int, void*> Handlers() {
  std::map<int, void*> handlers;
  for (int s = 1; s < 65; ++s) {
    struct sigaction a{};
    if (sigaction(s, nullptr, &a) == 0) handlers[s] = reinterpret_cast<void*>(a.sa_sigaction);
  }
  return handlers;
}

// First, while UCX is not loaded.
TEST(Ucx, LoadingChangesNeitherSignalsNorEnvironment) {
  const std::map<int, void*> before = Handlers();
  const UcxInfo info = UcxProbe("");
  ASSERT_TRUE(info.found) << info.remedy;
  EXPECT_THAT(info.version, testing::StartsWith("1."));
  EXPECT_THAT(info.path, HasSubstr("libucp"));
  auto api = LoadUcx("");
  ASSERT_TRUE(api.ok());
  UcxOptions options;
  auto config = MakeConfig(*api, options, "posix,self", nullptr);
  ASSERT_TRUE(config.ok()) << config.status();
  {
    auto p2p = UcxP2p::Create(*api, config->get(), 0, 2);
    ASSERT_TRUE(p2p.ok()) << p2p.status();
    EXPECT_FALSE((*p2p)->address().empty());
    EXPECT_EQ(Handlers(), before);
  }
  EXPECT_EQ(Handlers(), before);
  for (const char* name : {"UCX_HANDLE_ERRORS", "UCX_ERROR_SIGNALS", "UCX_DEBUG_SIGNO", "UCX_LOG_LEVEL", "UCX_CMA_MEMORY_INVALIDATE"}) EXPECT_EQ(getenv(name), nullptr) << name;
}

TEST(Ucx, MissingLibrarySaysWhatToInstall) {
  const UcxInfo info = UcxProbe("libucp_that_is_not_there.so");
  EXPECT_FALSE(info.found);
  for (const char* words : {"libucp_that_is_not_there.so", "libucx0", "transport.ucx_library", "transport=inproc"}) EXPECT_THAT(info.remedy, HasSubstr(words));
  RendezvousOptions rendezvous;
  rendezvous.port = 1;
  rendezvous.world_size = 2;
  UcxOptions options;
  options.library = "libucp_that_is_not_there.so";
  EXPECT_EQ(MakeUcxTransport(options, rendezvous, nullptr).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Ucx, SecondLibraryInOneProcessIsRefused) {
  ASSERT_TRUE(UcxProbe("").found);
  const UcxInfo info = UcxProbe("/nowhere/libucp.so.0");
  EXPECT_FALSE(info.found);
  EXPECT_THAT(info.remedy, HasSubstr("has loaded"));
}

TEST(Ucx, UnknownTransportIsAnError) {
  auto api = LoadUcx("");
  ASSERT_TRUE(api.ok());
  auto config = MakeConfig(*api, UcxOptions(), "carrier_pigeon", nullptr);
  ASSERT_TRUE(config.ok()) << config.status();
  auto p2p = UcxP2p::Create(*api, config->get(), 0, 2);
  EXPECT_FALSE(p2p.ok());
  EXPECT_THAT(std::string(p2p.status().message()), HasSubstr("transport.ucx_tls"));
}

TEST(Ucx, TheUsersEnvironmentWinsAndIsLogged) {
  auto api = LoadUcx("");
  ASSERT_TRUE(api.ok());
  std::string log;
  setenv("UCX_RNDV_THRESH", "123", 1);
  setenv("UCX_TLS", "tcp,self", 1);
  UcxOptions options;
  options.tls = "posix,self";
  EXPECT_EQ(ChooseTls(options, true), "tcp,self");
  EXPECT_TRUE(MakeConfig(*api, options, ChooseTls(options, true), [&](LogLevel, const std::string& m) { log += m; }).ok());
  unsetenv("UCX_RNDV_THRESH");
  unsetenv("UCX_TLS");
  EXPECT_THAT(log, HasSubstr("UCX_RNDV_THRESH=123 from the environment"));
  EXPECT_THAT(log, HasSubstr("UCX_TLS=tcp,self"));
  EXPECT_EQ(ChooseTls(options, true), "posix,self");
  options.tls = "";
  EXPECT_EQ(ChooseTls(options, true), "posix,cma,tcp,self");
  EXPECT_EQ(ChooseTls(options, false), "posix,tcp,self");
}

TEST(Lanes, AreRead) {
  const Lanes shm = ParseLanes(
      "#\n# UCP endpoint \n#\n#               peer: <no debug data>\n"
      "#                 lane[0]:  1:posix/memory.0 md[1]          -> md[1]/posix/sysdev[255] am am_bw#0 keepalive\n"
      "#                 lane[1]:  2:cma/memory.0 md[2]            -> md[2]/cma/sysdev[255] rma_bw#0\n#\n"
      "#                tag_send: 0..<egr/short>..93..<egr/bcopy>..8256..<rndv>..(inf)\n");
  EXPECT_EQ(shm.text, "posix+cma (shared memory)");
  EXPECT_TRUE(shm.shared_memory);
  const Lanes tcp = ParseLanes("#   lane[0]:  0:tcp/eth0.0 md[0]  -> md[0]/tcp/sysdev[255] am am_bw#0 wireup\n");
  EXPECT_EQ(tcp.text, "tcp eth0");
  EXPECT_FALSE(tcp.shared_memory);
  EXPECT_EQ(ParseLanes("").text, "unknown");
  EXPECT_EQ(ParseLanes("lane[\nlane[0]: \nlane[1]: 3\n").text, "unknown");
}

TEST(Host, TooLittleSharedMemoryIsAnErrorThatNamesIt) {
  EXPECT_TRUE(CheckSharedMemory("/dev/shm", 1).ok());
  const absl::Status s = CheckSharedMemory("/dev/shm", int64_t{1} << 40);
  EXPECT_EQ(s.code(), absl::StatusCode::kResourceExhausted);
  for (const char* words : {"/dev/shm has ", "KiB free of", "--shm-size", "transport.ucx_tls=tcp,self"}) EXPECT_THAT(std::string(s.message()), HasSubstr(words));
  EXPECT_EQ(CheckSharedMemory("/no/such/folder", 1).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Host, MemoryOfAnotherProcessIsReadOnlyWhenItIsThere) {
  const CmaProbe probe;
  std::string card = probe.Card();
  EXPECT_TRUE(CmaProbe::CanRead(card));
  card.back() = static_cast<char>(card.back() + 1);  // another secret
  EXPECT_FALSE(CmaProbe::CanRead(card));
  EXPECT_FALSE(CmaProbe::CanRead(""));
}

TEST(Host, IdentityIsStable) {
  EXPECT_EQ(HostIdentity(), HostIdentity());
  EXPECT_GT(HostIdentity().size(), 20u);
}

}  // namespace
}  // namespace moe
