#include "transport/bootstrap/frame_socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace moe {
namespace {

constexpr uint32_t kMagic = 0x31456f4d;  // "MoE1"
constexpr int64_t kMaxUnsent = int64_t{256} << 20;

struct Header {
  uint32_t magic;
  uint32_t type;
  uint64_t length;
};

absl::Status Broken(const char* what) {
  const int e = errno;
  return absl::UnavailableError(e == ECONNRESET || e == EPIPE ? "connection reset" : absl::StrCat(what, ": ", std::strerror(e)));
}

}  // namespace

FrameSocket::FrameSocket(int fd) : fd_(fd), max_payload_(int64_t{1} << 20) {
  fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
  fcntl(fd_, F_SETFD, FD_CLOEXEC);
  const int on = 1;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

FrameSocket::~FrameSocket() { close(fd_); }

absl::Status FrameSocket::Read() {
  char buffer[65536];
  for (;;) {
    const ssize_t n = recv(fd_, buffer, sizeof(buffer), 0);
    if (n == 0) return absl::UnavailableError("connection closed");
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return absl::OkStatus();
      return Broken("recv");
    }
    if (taken_ > 0) {
      in_.erase(0, taken_);
      taken_ = 0;
    }
    in_.append(buffer, n);
    if (in_.size() >= sizeof(Header)) {
      Header h;
      std::memcpy(&h, in_.data(), sizeof(h));
      if (h.magic != kMagic || h.type < 1 || h.type > static_cast<uint32_t>(FrameType::kLast) || h.length > static_cast<uint64_t>(max_payload_)) {
        return absl::DataLossError("what came is not the protocol of this library");
      }
      // The rest is read when these frames are taken.
      if (in_.size() >= sizeof(Header) + h.length) return absl::OkStatus();
    } else if (std::memcmp(in_.data(), &kMagic, std::min(in_.size(), sizeof(kMagic))) != 0) {
      return absl::DataLossError("what came is not the protocol of this library");
    }
  }
}

bool FrameSocket::Next(Frame* frame) {
  if (in_.size() - taken_ < sizeof(Header)) return false;
  Header h;
  std::memcpy(&h, in_.data() + taken_, sizeof(h));
  if (h.magic != kMagic || h.length > static_cast<uint64_t>(max_payload_) || in_.size() - taken_ - sizeof(h) < h.length) return false;
  frame->type = static_cast<FrameType>(h.type);
  frame->payload.assign(in_, taken_ + sizeof(h), h.length);
  taken_ += sizeof(h) + h.length;
  if (taken_ == in_.size()) {
    in_.clear();
    taken_ = 0;
    if (in_.capacity() > (1 << 20)) in_.shrink_to_fit();
  }
  return true;
}

absl::Status FrameSocket::Write(FrameType type, const std::string& payload) {
  const Header h{kMagic, static_cast<uint32_t>(type), payload.size()};
  if (static_cast<int64_t>(out_.size() - sent_ + payload.size()) > kMaxUnsent) return absl::UnavailableError("the other side does not read");
  out_.append(reinterpret_cast<const char*>(&h), sizeof(h));
  out_.append(payload);
  return Flush();
}

absl::Status FrameSocket::Flush() {
  while (sent_ < out_.size()) {
    const ssize_t n = send(fd_, out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return absl::OkStatus();
      return Broken("send");
    }
    sent_ += n;
  }
  out_.clear();
  sent_ = 0;
  return absl::OkStatus();
}

void FrameSocket::EndWriting() { shutdown(fd_, SHUT_WR); }

}  // namespace moe
