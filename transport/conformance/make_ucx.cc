#include "transport/conformance/make_ucx.h"

namespace moe::conformance {

absl::StatusOr<std::unique_ptr<Transport>> MakeUcx(const Rank&) { return absl::UnimplementedError("ucx"); }

}  // namespace moe::conformance
