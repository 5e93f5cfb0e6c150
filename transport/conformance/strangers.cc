#include "transport/conformance/strangers.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace moe::conformance {
namespace {

sockaddr_in Local(int port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  a.sin_port = htons(static_cast<uint16_t>(port));
  return a;
}

}  // namespace

Strangers::Strangers(int port, int count)
    : thread_([this, port, count] {
        const std::string garbage(3000, '\x7f');
        std::vector<int> fds;
        while (!stop_ && static_cast<int>(fds.size()) < count) {
          const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
          const sockaddr_in a = Local(port);
          if (connect(fd, reinterpret_cast<const sockaddr*>(&a), sizeof(a)) != 0) {
            close(fd);
            poll(nullptr, 0, 1);
            continue;
          }
          if (fds.size() % 2 == 0 && send(fd, garbage.data(), garbage.size(), MSG_NOSIGNAL) < 0) poll(nullptr, 0, 1);
          fds.push_back(fd);
        }
        while (!stop_) poll(nullptr, 0, 5);
        for (int fd : fds) close(fd);
      }) {}

Strangers::~Strangers() {
  stop_ = true;
  thread_.join();
}

Listener::Listener(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const sockaddr_in a = Local(port);
  if (bind(fd_, reinterpret_cast<const sockaddr*>(&a), sizeof(a)) != 0 || listen(fd_, 8) != 0) std::abort();
}

Listener::~Listener() { close(fd_); }

}  // namespace moe::conformance
