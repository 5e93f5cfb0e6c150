// Rank 0's side: listens, judges who comes, tells all of them the outcome. Strangers (port scanners, garbage, silence) cost a bounded
// number of connections, bytes and seconds and never stop the job from forming.
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_join.h"
#include "transport/bootstrap/control_plane.h"
#include "transport/bootstrap/frame_socket.h"
#include "transport/bootstrap/hello.h"
#include "transport/bootstrap/rendezvous_sides.h"
#include "transport/bytes.h"

namespace moe {
namespace {

constexpr size_t kMaxStrangers = 64;                      // connections that have not said who they are
constexpr absl::Duration kHelloTime = absl::Seconds(5);   // to say it
constexpr absl::Duration kMismatchGrace = absl::Seconds(2);  // for the other ranks to come and hear of a mismatch
constexpr absl::Duration kFarewell = absl::Milliseconds(300);

bool IsLoopback(const addrinfo* a) {
  if (a->ai_family == AF_INET) return ntohl(reinterpret_cast<const sockaddr_in*>(a->ai_addr)->sin_addr.s_addr) >> 24 == 127;
  return a->ai_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(a->ai_addr)->sin6_addr);
}

absl::StatusOr<int> Listen(const RendezvousOptions& o) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  const std::string port = absl::StrCat(o.port);
  int e = getaddrinfo(o.host.c_str(), port.c_str(), &hints, &found);
  in6_addr ignored;
  const bool literal = inet_pton(AF_INET, o.host.c_str(), &ignored) == 1 || inet_pton(AF_INET6, o.host.c_str(), &ignored) == 1;
  if (e == 0 && !literal && o.host != "localhost" && IsLoopback(found)) {
    // Debian and others give a machine's own name the address 127.0.1.1, where nobody else could come.
    freeaddrinfo(found);
    e = getaddrinfo(nullptr, port.c_str(), &hints, &found);
  }
  if (e != 0) return InvalidArgument("transport.host \"", o.host, "\": ", gai_strerror(e));
  auto cleanup = absl::MakeCleanup([&] { freeaddrinfo(found); });
  int error = 0;
  for (addrinfo* a = found; a != nullptr; a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (fd < 0) { error = errno; continue; }
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));  // a job that ended a moment ago does not block the port
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 1024) == 0) return fd;
    error = errno;
    close(fd);
  }
  if (error == EADDRINUSE) {
    return absl::AlreadyExistsError(absl::StrCat("transport.port ", o.port, " on ", o.host, " is taken by another program (or another job); choose another port"));
  }
  if (error == EADDRNOTAVAIL) return InvalidArgument("transport.host ", o.host, " is not an address of rank 0's machine");
  return absl::UnavailableError(absl::StrCat("transport.port ", o.port, " on ", o.host, ": ", std::strerror(error)));
}

class Root {
 public:
  Root(const RendezvousOptions& o, const std::string& data_plane, const LogSink& log)
      : options_(o), mine_(MakeHello(o, data_plane)), log_(log), deadline_(absl::Now() + o.timeout), peers_(o.world_size), gone_(o.world_size) {}
  ~Root() { if (listener_ >= 0) close(listener_); }

  absl::StatusOr<std::unique_ptr<ControlPlane>> Run() {
    MOE_ASSIGN_OR_RETURN(listener_, Listen(options_));
    while (!Missing().empty() && absl::Now() < deadline_) Step();
    if (failure_.ok() && !Missing().empty()) failure_ = TimedOut();
    if (!failure_.ok()) {
      for (auto& p : peers_) {
        if (p != nullptr) p->Write(FrameType::kRefuse, EncodeStatus(failure_)).IgnoreError();
      }
      Farewell();
      return failure_;
    }
    for (auto& p : peers_) {
      if (p != nullptr) p->Write(FrameType::kReady, "").IgnoreError();  // a death now is noticed by the control plane
    }
    return std::make_unique<ControlPlane>(options_, std::move(peers_), log_);
  }

 private:
  struct Stranger {
    std::unique_ptr<FrameSocket> socket;
    absl::Time deadline;
  };

  std::vector<int64_t> Missing() const {
    std::vector<int64_t> missing;
    for (int64_t r = 1; r < options_.world_size; ++r) {
      if (peers_[r] == nullptr) missing.push_back(r);
    }
    return missing;
  }

  absl::Status TimedOut() const {
    FailureInfo info;
    info.origin_rank = 0;
    info.failed_ranks = Missing();
    return WithFailureInfo(absl::DeadlineExceededError(absl::StrCat("rendezvous of job \"", options_.job_id, "\" at ", options_.host, ":", options_.port, ": waited ",
                                                                    absl::FormatDuration(options_.timeout), " for ", options_.world_size, " ranks; missing ranks: ",
                                                                    absl::StrJoin(info.failed_ranks, ", "))), info);
  }

  void Fail(const absl::Status& why) {
    if (!failure_.ok()) return;
    failure_ = why;
    deadline_ = std::min(deadline_, absl::Now() + kMismatchGrace);
  }

  void Step() {
    std::vector<pollfd> fds = {{listener_, POLLIN, 0}};
    for (Stranger& s : strangers_) fds.push_back({s.socket->fd(), POLLIN, 0});
    for (int64_t r = 1; r < options_.world_size; ++r) {
      if (peers_[r] != nullptr && !gone_[r]) fds.push_back({peers_[r]->fd(), POLLIN, 0});
    }
    const absl::Duration left = std::min(deadline_ - absl::Now(), absl::Milliseconds(100));
    poll(fds.data(), fds.size(), static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);

    for (int64_t r = 1; r < options_.world_size; ++r) {
      if (peers_[r] == nullptr || gone_[r]) continue;
      if (absl::Status s = peers_[r]->Read(); !s.ok()) {  // it has nothing to say until all are here
        FailureInfo info;
        info.origin_rank = 0;
        info.failed_ranks = {r};
        Fail(WithFailureInfo(absl::UnavailableError(absl::StrCat("rank ", r, " died during the rendezvous (", s.message(), ")")), info));
        gone_[r] = true;  // its place stays taken: nobody waits for it
      }
    }
    for (auto it = strangers_.begin(); it != strangers_.end();) it = Ask(&*it) ? std::next(it) : strangers_.erase(it);
    Accept();
  }

  void Accept() {
    for (;;) {
      const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) return;
      if (strangers_.size() >= kMaxStrangers) strangers_.pop_front();  // the oldest has had its chance
      strangers_.push_back({std::make_unique<FrameSocket>(fd), absl::Now() + kHelloTime});
      strangers_.back().socket->set_max_payload(Hello::kMaxBytes);
    }
  }

  // False: it is a stranger no more, one way or the other.
  bool Ask(Stranger* s) {
    const absl::Status read = s->socket->Read();
    Frame frame;
    if (!s->socket->Next(&frame)) {
      if (read.ok() && absl::Now() < s->deadline) return true;
      Log(log_, LogLevel::kWarning, absl::StrCat("rendezvous: dropped a connection to transport.port ", options_.port, " that did not say which rank it is (",
                                                 read.ok() ? "nothing came" : std::string(read.message()), ")"));
      return false;
    }
    Hello hello;
    if (frame.type != FrameType::kHello || !Decode(frame.payload, &hello)) {
      Log(log_, LogLevel::kWarning, absl::StrCat("rendezvous: dropped a connection to transport.port ", options_.port, " with a greeting that cannot be read"));
      return false;
    }
    const bool in_range = hello.rank >= 1 && hello.rank < options_.world_size;
    absl::Status reason;
    const HelloVerdict verdict = Judge(mine_, hello, in_range && peers_[hello.rank] != nullptr, &reason);
    if (verdict != HelloVerdict::kWelcome) {
      Log(log_, LogLevel::kWarning, absl::StrCat("rendezvous: refused: ", reason.message()));
      s->socket->Write(FrameType::kRefuse, EncodeStatus(reason)).IgnoreError();
      if (verdict == HelloVerdict::kMismatch) {
        Fail(reason);
        if (in_range && peers_[hello.rank] == nullptr) peers_[hello.rank] = std::move(s->socket);  // nobody waits for it
      } else {
        refused_.push_back(std::move(s->socket));
        if (refused_.size() > kMaxStrangers) refused_.erase(refused_.begin());
      }
      return false;
    }
    std::string wait;
    PutInt(&wait, absl::ToInt64Milliseconds(deadline_ - absl::Now()));
    s->socket->Write(FrameType::kWelcome, wait).IgnoreError();
    peers_[hello.rank] = std::move(s->socket);
    return false;
  }

  // The word gets out before the connections close: a close with unread bytes would destroy what is under way.
  void Farewell() {
    const absl::Time until = absl::Now() + kFarewell;
    for (auto& p : peers_) {
      if (p != nullptr) p->EndWriting();
    }
    for (auto& p : peers_) {
      while (p != nullptr && absl::Now() < until) {
        p->Flush().IgnoreError();
        pollfd fd{p->fd(), POLLIN, 0};
        poll(&fd, 1, static_cast<int>(absl::ToInt64Milliseconds(until - absl::Now())) + 1);
        Frame ignored;
        if (!p->Read().ok()) break;
        while (p->Next(&ignored)) {
        }
      }
    }
  }

  const RendezvousOptions options_;
  const Hello mine_;
  const LogSink log_;
  absl::Time deadline_;
  int listener_ = -1;
  std::vector<std::unique_ptr<FrameSocket>> peers_;    // by rank, 0 is empty
  std::vector<bool> gone_;                             // its connection has ended
  std::list<Stranger> strangers_;                      // oldest first
  std::vector<std::unique_ptr<FrameSocket>> refused_;  // kept open a while so that the reason is read
  absl::Status failure_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ControlPlane>> RendezvousRoot(const RendezvousOptions& options, const std::string& data_plane, const LogSink& log) {
  return Root(options, data_plane, log).Run();
}

}  // namespace moe
