// The side of all other ranks: connect (rank 0 may come later), say hello, wait for the outcome that rank 0 tells.
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "transport/bootstrap/control_plane.h"
#include "transport/bootstrap/frame_socket.h"
#include "transport/bootstrap/hello.h"
#include "transport/bootstrap/rendezvous_sides.h"
#include "transport/bytes.h"

namespace moe {
namespace {

constexpr absl::Duration kConnectTime = absl::Seconds(2);   // of one attempt
constexpr absl::Duration kRetry = absl::Milliseconds(20);
constexpr absl::Duration kOutcomeGrace = absl::Seconds(3);  // after rank 0's own deadline

int ToMillis(absl::Duration d) { return static_cast<int>(absl::ToInt64Milliseconds(std::max(d, absl::ZeroDuration()))) + 1; }

// One attempt; -1 and `error` when nobody is there.
int Connect(const addrinfo* addresses, absl::Time deadline, std::string* error) {
  for (const addrinfo* a = addresses; a != nullptr; a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (fd < 0) { *error = std::strerror(errno); continue; }
    int e = connect(fd, a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
    if (e == EINPROGRESS) {
      pollfd p{fd, POLLOUT, 0};
      const int n = poll(&p, 1, ToMillis(std::min(kConnectTime, deadline - absl::Now())));
      socklen_t length = sizeof(e);
      if (n == 0) e = ETIMEDOUT;
      else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &length) != 0) e = errno;
    }
    if (e == 0) return fd;
    *error = std::strerror(e);
    close(fd);
  }
  return -1;
}

// The next frame, or the error of the connection, or DEADLINE_EXCEEDED.
absl::StatusOr<Frame> Receive(FrameSocket* socket, absl::Time deadline) {
  Frame frame;
  for (;;) {
    const absl::Status read = socket->Read();
    if (socket->Next(&frame)) return frame;
    MOE_RETURN_IF_ERROR(read);
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("no answer");
    pollfd p{socket->fd(), POLLIN, 0};
    poll(&p, 1, ToMillis(left));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ControlPlane>> RendezvousPeer(const RendezvousOptions& o, const std::string& data_plane, const LogSink& log) {
  const absl::Time deadline = absl::Now() + o.timeout;
  const std::string where = absl::StrCat(o.host, ":", o.port);
  FailureInfo root;
  root.origin_rank = o.rank;
  root.failed_ranks = {0};
  std::string last_error = "no attempt was made";
  for (; absl::Now() < deadline; poll(nullptr, 0, ToMillis(kRetry))) {
    addrinfo hints{}, *addresses = nullptr;
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    if (const int e = getaddrinfo(o.host.c_str(), absl::StrCat(o.port).c_str(), &hints, &addresses); e != 0) {
      if (e != EAI_AGAIN) return InvalidArgument("transport.host \"", o.host, "\": ", gai_strerror(e));
      last_error = gai_strerror(e);
      continue;
    }
    auto cleanup = absl::MakeCleanup([&] { freeaddrinfo(addresses); });
    const int fd = Connect(addresses, deadline, &last_error);
    if (fd < 0) continue;
    auto socket = std::make_unique<FrameSocket>(fd);
    socket->Write(FrameType::kHello, Encode(MakeHello(o, data_plane))).IgnoreError();  // the read tells
    const absl::StatusOr<Frame> answer = Receive(socket.get(), deadline);
    if (absl::IsDataLoss(answer.status())) return FailedPrecondition("what answers at ", where, " is not rank 0 of a job of this library; check transport.host and transport.port");
    if (!answer.ok()) {  // rank 0 of an earlier job was just closing, or is being started again
      last_error = std::string(answer.status().message());
      continue;
    }
    if (answer->type == FrameType::kRefuse) return Annotate(DecodeStatus(answer->payload), absl::StrCat("rendezvous at ", where, " refused rank ", o.rank));
    int64_t wait_ms = 0;
    ByteReader in(answer->payload);
    if (answer->type != FrameType::kWelcome || !in.Int(&wait_ms)) return Internal("rendezvous at ", where, ": unexpected answer ", static_cast<int>(answer->type));

    // In. From here on rank 0 tells the outcome, and its silence is its death.
    absl::StatusOr<Frame> outcome = Receive(socket.get(), absl::Now() + absl::Milliseconds(std::clamp<int64_t>(wait_ms, 0, 100'000'000)) + kOutcomeGrace);
    if (!outcome.ok()) {
      return WithFailureInfo(absl::UnavailableError(absl::StrCat("rank 0 died during the rendezvous at ", where, " (", outcome.status().message(), ")")), root);
    }
    if (outcome->type == FrameType::kRefuse) return DecodeStatus(outcome->payload);
    if (outcome->type != FrameType::kReady) return Internal("rendezvous at ", where, ": unexpected outcome ", static_cast<int>(outcome->type));
    std::vector<std::unique_ptr<FrameSocket>> peers(o.world_size);
    peers[0] = std::move(socket);
    return std::make_unique<ControlPlane>(o, std::move(peers), log);
  }
  return WithFailureInfo(absl::DeadlineExceededError(absl::StrCat("rendezvous of job \"", o.job_id, "\": rank ", o.rank, " waited ", absl::FormatDuration(o.timeout),
                                                                  " for rank 0 at ", where, " (last attempt: ", last_error, "); missing ranks: 0")), root);
}

}  // namespace moe
