// The UCX end of the conformance jobs.
#ifndef MOE_TRANSPORT_CONFORMANCE_MAKE_UCX_H_
#define MOE_TRANSPORT_CONFORMANCE_MAKE_UCX_H_

#include <memory>

#include "transport/conformance/job.h"

namespace moe::conformance {

absl::StatusOr<std::unique_ptr<Transport>> MakeUcx(const Rank& rank);

}  // namespace moe::conformance
#endif  // MOE_TRANSPORT_CONFORMANCE_MAKE_UCX_H_
