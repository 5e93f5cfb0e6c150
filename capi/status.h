// What an error is to the caller.
#ifndef MOE_CAPI_STATUS_H_
#define MOE_CAPI_STATUS_H_

#include <string>

#include "capi/moe.h"
#include "core/base/status.h"

struct moe_status {
  int32_t code;
  std::string message;
  moe::FailureInfo info;
};

namespace moe::capi {

// RESOURCE_EXHAUSTED without asking for memory: one object for all, which moe_status_destroy leaves alone.
moe_status* OutOfMemory() noexcept;

}  // namespace moe::capi
#endif  // MOE_CAPI_STATUS_H_
