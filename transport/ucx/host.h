// What a rank must know of its machine and of its peers' before it opens UCX.
#ifndef MOE_TRANSPORT_UCX_HOST_H_
#define MOE_TRANSPORT_UCX_HOST_H_

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/status.h"

namespace moe {

// Equal for processes that can share memory: same running kernel, host name, IPC namespace and /dev/shm.
std::string HostIdentity();

// Can one process read another's memory? Depends on container and kernel settings, so it is tried: each rank shows a secret number, its
// neighbour on the machine reads it.
class CmaProbe {
 public:
  CmaProbe();
  // To be sent to the neighbour.
  std::string Card() const;
  // Whether the process that made `card` can be read.
  static bool CanRead(const std::string& card);

 private:
  struct Where {
    int64_t pid;
    uint64_t address, secret;
  };
  std::unique_ptr<uint64_t> secret_;
};

// RESOURCE_EXHAUSTED when `directory` has less room than `ranks` workers need. (UCX would end in SIGBUS.)
absl::Status CheckSharedMemory(const std::string& directory, int64_t ranks);

}  // namespace moe
#endif  // MOE_TRANSPORT_UCX_HOST_H_
