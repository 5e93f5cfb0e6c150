#include "transport/conformance/make_ucx.h"

#include <cstdio>

#include "transport/ucx/ucx.h"

namespace moe::conformance {

absl::StatusOr<std::unique_ptr<Transport>> MakeUcx(const Rank& rank) {
  UcxOptions ucx;
  ucx.tls = rank.lane == Lane::kShm ? "posix,cma,self" : "tcp,self";
  if (rank.lane == Lane::kTcp) ucx.net_device = "lo";
  RendezvousOptions rendezvous;
  rendezvous.port = rank.port;
  rendezvous.job_id = rank.job_id;
  rendezvous.rank = rank.rank;
  rendezvous.world_size = rank.size;
  rendezvous.timeout = rank.timeout;
  rendezvous.heartbeat = rank.heartbeat;
  rendezvous.build_version = "test";
  return MakeUcxTransport(ucx, rendezvous, [](LogLevel level, const std::string& message) {
    if (level >= LogLevel::kWarning) std::fprintf(stderr, "log: %s\n", message.c_str());
  });
}

}  // namespace moe::conformance
