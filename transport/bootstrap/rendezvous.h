// The meeting of the ranks of a job over TCP: rank 0 listens, the others come, and either all know that all are there, or all know why
// not and who is missing. The connections stay open and become the control plane.
//
// Trust: whoever knows the job id can join; keep the port inside the cluster. (A challenge with a shared secret fits between kHello
// and kWelcome without another change.)
#ifndef MOE_TRANSPORT_BOOTSTRAP_RENDEZVOUS_H_
#define MOE_TRANSPORT_BOOTSTRAP_RENDEZVOUS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "core/base/log.h"
#include "core/base/status.h"

namespace moe {

class ControlPlane;

struct RendezvousOptions {
  std::string host = "127.0.0.1";              // of rank 0
  int port = 0;                                 // of rank 0; the same on all ranks
  std::string job_id;                           // the same on all ranks of a job, another for every job
  int64_t rank = 0, world_size = 1;
  absl::Duration timeout = absl::Seconds(60);   // for all ranks to come; also of CreateGroup and Shutdown
  absl::Duration heartbeat = absl::Seconds(10); // a rank that is silent for so long counts as dead
  int64_t epoch = 0;                            // generation of the job after failures
  std::string build_version;                    // of this program; must be equal on all ranks
};

// `data_plane`: library and version that will carry the data ("UCX 1.13.1"); must be equal on all ranks. Errors:
// INVALID_ARGUMENT / FAILED_PRECONDITION for options and mismatches, DEADLINE_EXCEEDED with the missing ranks, UNAVAILABLE when a rank died.
absl::StatusOr<std::unique_ptr<ControlPlane>> Rendezvous(const RendezvousOptions& options, const std::string& data_plane, const LogSink& log);

}  // namespace moe
#endif  // MOE_TRANSPORT_BOOTSTRAP_RENDEZVOUS_H_
