#include "transport/bootstrap/hello.h"

#include "transport/bytes.h"
#include "transport/notice.h"

namespace moe {

Hello MakeHello(const RendezvousOptions& options, const std::string& data_plane) {
  Hello h;
  h.rank = options.rank;
  h.world_size = options.world_size;
  h.epoch = options.epoch;
  h.job_id = options.job_id;
  h.data_plane = data_plane;
  h.build_version = options.build_version;
  return h;
}

std::string Encode(const Hello& h) {
  std::string s;
  for (int64_t v : {h.protocol, h.rank, h.world_size, h.epoch}) PutInt(&s, v);
  for (const std::string& t : {h.job_id, h.data_plane, h.build_version}) PutText(&s, t);
  return s;
}

bool Decode(const std::string& bytes, Hello* h) {
  ByteReader in(bytes);
  return in.Int(&h->protocol) && in.Int(&h->rank) && in.Int(&h->world_size) && in.Int(&h->epoch) && in.Text(&h->job_id) && in.Text(&h->data_plane) &&
         in.Text(&h->build_version) && in.AtEnd();
}

HelloVerdict Judge(const Hello& here, const Hello& there, bool taken, absl::Status* reason) {
  const auto mismatch = [&](const char* what, const auto& theirs, const auto& mine, const char* remedy) {
    FailureInfo info;
    info.origin_rank = 0;
    info.failed_ranks = {0, there.rank};
    *reason = WithFailureInfo(FailedPrecondition("rank ", there.rank, " has ", what, " ", theirs, ", rank 0 has ", mine, "; ", remedy), info);
    return HelloVerdict::kMismatch;
  };
  if (there.job_id != here.job_id) {
    *reason = FailedPrecondition("job id \"", there.job_id, "\" came to the rendezvous of job \"", here.job_id,
                                 "\": two jobs use one transport.port, or a process of an old job is still running");
    return HelloVerdict::kStranger;
  }
  if (there.protocol != here.protocol) return mismatch("rendezvous protocol", there.protocol, here.protocol, "all ranks need the same build");
  if (there.world_size != here.world_size) return mismatch("world size", there.world_size, here.world_size, "start all ranks with the same number");
  if (there.build_version != here.build_version) return mismatch("build", there.build_version, here.build_version, "all ranks need the same build");
  if (there.data_plane != here.data_plane) {
    return mismatch("transport", there.data_plane, here.data_plane, "all ranks need the same version: they do not understand each other (see transport.ucx_library)");
  }
  if (there.rank < 1 || there.rank >= here.world_size) {
    *reason = InvalidArgument("rank ", there.rank, " came to the rendezvous; ranks of this job that come are 1 .. ", here.world_size - 1);
    return HelloVerdict::kStranger;
  }
  if (there.epoch != here.epoch) {
    *reason = FailedPrecondition("rank ", there.rank, " came with epoch ", there.epoch, " to the rendezvous of epoch ", here.epoch, ": a process of an earlier generation");
    return HelloVerdict::kStranger;
  }
  if (taken) {
    *reason = absl::AlreadyExistsError(absl::StrCat("rank ", there.rank, " is here already: two processes were started with one rank"));
    return HelloVerdict::kStranger;
  }
  return HelloVerdict::kWelcome;
}

std::string EncodeStatus(const absl::Status& status) {
  Notice n;
  n.status = status;
  return Encode(n);
}

absl::Status DecodeStatus(const std::string& bytes) {
  Notice n;
  if (!Decode(bytes, &n) || n.status.ok()) return absl::DataLossError("rank 0 sent a status that cannot be read");
  return n.status;
}

}  // namespace moe
