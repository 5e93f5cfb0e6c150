#include "transport/bootstrap/rendezvous.h"

#include "transport/bootstrap/control_plane.h"
#include "transport/bootstrap/hello.h"
#include "transport/bootstrap/rendezvous_sides.h"
#include "transport/tag.h"

namespace moe {

absl::StatusOr<std::unique_ptr<ControlPlane>> Rendezvous(const RendezvousOptions& o, const std::string& data_plane, const LogSink& log) {
  if (o.world_size < 1 || o.world_size > kMaxWorldSize) return InvalidArgument("world_size is ", o.world_size, "; it must be 1 .. ", kMaxWorldSize);
  if (o.rank < 0 || o.rank >= o.world_size) return InvalidArgument("rank is ", o.rank, "; ranks of this job are 0 .. ", o.world_size - 1);
  if (o.port < 1 || o.port > 65535) return InvalidArgument("transport.port is ", o.port, "; it must be 1 .. 65535");
  if (static_cast<int64_t>(Encode(MakeHello(o, data_plane)).size()) > Hello::kMaxBytes) return InvalidArgument("job id and versions are longer than ", Hello::kMaxBytes, " bytes");
  if (o.heartbeat <= absl::ZeroDuration()) return InvalidArgument("heartbeat is ", absl::FormatDuration(o.heartbeat), "; it must be positive");
  return o.rank == 0 ? RendezvousRoot(o, data_plane, log) : RendezvousPeer(o, data_plane, log);
}

}  // namespace moe
