// Collective calls: an error of one rank is an error of all ranks, and nobody waits for a rank that has given up.
//
// First all ranks compare whether their arguments are good and the same: a refused call leaves everything as it was and can be made
// again. After that a failure of one rank alone (memory, numbers that are not finite) ends the communication of all with its message.
#ifndef MOE_CAPI_COLLECTIVE_H_
#define MOE_CAPI_COLLECTIVE_H_

#include <functional>

#include "capi/engine_state.h"

namespace moe::capi {

// The communicator, or null for a group of this rank alone: the engine then moves nothing.
inline Communicator* Several(const std::shared_ptr<Communicator>& c) { return c && c->size() > 1 ? c.get() : nullptr; }

// OK on all ranks or an error on all ranks. `fingerprint` must be the same on all: `what` says what it stands for.
absl::Status Meet(Communicator* group, const absl::Status& mine, const char* what, uint64_t fingerprint);

// Runs f; when it fails or throws on this rank, `abort` is called with what the other of the `ranks` ranks shall get. Not when all of them
// have agreed on the error.
absl::Status Run(int64_t rank, int64_t ranks, const std::function<void(const absl::Status&)>& abort, const std::function<absl::Status()>& f);

// For fingerprints (FNV-1a).
uint64_t Hash(const void* data, size_t bytes, uint64_t h = 0xcbf29ce484222325u);

}  // namespace moe::capi
#endif  // MOE_CAPI_COLLECTIVE_H_
