// What ranks tell each other outside the stream of data: that something failed, or that somebody waits. Comes from
// other threads (control connection, another rank's thread, Abort), is taken by the engine at its next progress.
#ifndef MOE_TRANSPORT_NOTICE_H_
#define MOE_TRANSPORT_NOTICE_H_

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "transport/descriptor.h"

namespace moe {

struct Notice {
  enum class Kind : uint8_t {
    kFailAll = 1,    // poisons every communicator
    kFailGroup = 2,  // poisons one group
    kStall = 3,      // `rank` has waited long for `descriptor` in `group`
    kAllLeft = 4,    // every rank has called Shutdown (never sent: made where it is known)
  };
  Kind kind = Kind::kFailAll;
  int64_t group = -1;
  int64_t rank = -1;
  absl::Status status;
  Descriptor descriptor;
};

std::string Encode(const Notice& notice);
// False: not a notice (bounds are checked; the bytes come from a socket).
bool Decode(const std::string& bytes, Notice* notice);

// A copy with memory of its own, to be handed to another thread.
Notice Detached(const Notice& notice);

class NoticeInbox {
 public:
  void Push(const Notice& notice);
  bool pending() const { return pending_.load(std::memory_order_acquire); }
  std::vector<Notice> Take();
  // Called after each Push, from the pushing thread; after SetWake(nullptr) returns it is never called again.
  void SetWake(std::function<void()> wake);

 private:
  std::mutex mu_;
  std::vector<Notice> notices_;
  std::function<void()> wake_;
  std::atomic<bool> pending_{false};
};

}  // namespace moe
#endif  // MOE_TRANSPORT_NOTICE_H_
