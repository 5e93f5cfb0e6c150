// Who comes to a rendezvous port without belonging there, and who sits on it.
#ifndef MOE_TRANSPORT_CONFORMANCE_STRANGERS_H_
#define MOE_TRANSPORT_CONFORMANCE_STRANGERS_H_

#include <atomic>
#include <thread>

namespace moe::conformance {

// `count` connections with garbage or silence, as soon as somebody listens.
class Strangers {
 public:
  Strangers(int port, int count);
  ~Strangers();

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

class Listener {
 public:
  explicit Listener(int port);
  ~Listener();

 private:
  int fd_;
};

}  // namespace moe::conformance
#endif  // MOE_TRANSPORT_CONFORMANCE_STRANGERS_H_
