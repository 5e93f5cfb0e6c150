// The two sides of the rendezvous, behind Rendezvous().
#ifndef MOE_TRANSPORT_BOOTSTRAP_RENDEZVOUS_SIDES_H_
#define MOE_TRANSPORT_BOOTSTRAP_RENDEZVOUS_SIDES_H_

#include <memory>
#include <string>

#include "transport/bootstrap/rendezvous.h"

namespace moe {

absl::StatusOr<std::unique_ptr<ControlPlane>> RendezvousRoot(const RendezvousOptions& options, const std::string& data_plane, const LogSink& log);
absl::StatusOr<std::unique_ptr<ControlPlane>> RendezvousPeer(const RendezvousOptions& options, const std::string& data_plane, const LogSink& log);

}  // namespace moe
#endif  // MOE_TRANSPORT_BOOTSTRAP_RENDEZVOUS_SIDES_H_
