// Ranks as processes over UCX: shared memory on one machine, TCP (or what the library at hand can do) between machines.
#ifndef MOE_TRANSPORT_UCX_UCX_H_
#define MOE_TRANSPORT_UCX_UCX_H_

#include <memory>
#include <string>

#include "core/base/log.h"
#include "core/comm/communicator.h"
#include "transport/bootstrap/rendezvous.h"

namespace moe {

struct UcxOptions {
  std::string library;     // path or name of libucp; empty: the system's
  std::string tls;         // UCX transports; empty: posix,cma,tcp,self
  std::string net_device;  // network interface; empty: UCX's choice
  std::string flight_dir;  // of the flight recorder's file; empty: in memory alone
};

// Collective over the job: rendezvous, then connections between all ranks, each checked with a message. Errors are the same on all
// ranks where they can be told. A job of one rank needs no UCX: transport/self.h.
absl::StatusOr<std::unique_ptr<Transport>> MakeUcxTransport(const UcxOptions& options, const RendezvousOptions& rendezvous, LogSink log);

struct UcxInfo {
  bool found = false;
  std::string version, path;  // when found
  std::string remedy;         // when not
};
// What MakeUcxTransport would load.
UcxInfo UcxProbe(const std::string& library);

}  // namespace moe
#endif  // MOE_TRANSPORT_UCX_UCX_H_
