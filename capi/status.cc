#include "capi/status.h"

#include <cstdlib>

namespace moe::capi {

moe_status* OutOfMemory() noexcept {
  static moe_status status{MOE_RESOURCE_EXHAUSTED, "out of memory", FailureInfo()};   // short enough to need no memory itself
  return &status;
}

}  // namespace moe::capi

extern "C" {

int32_t moe_status_code(const moe_status* s) { return s ? s->code : MOE_OK; }
const char* moe_status_message(const moe_status* s) { return s ? s->message.c_str() : ""; }
int64_t moe_status_origin_rank(const moe_status* s) { return s ? s->info.origin_rank : -1; }
int64_t moe_status_num_failed_ranks(const moe_status* s) { return s ? static_cast<int64_t>(s->info.failed_ranks.size()) : 0; }
int64_t moe_status_failed_rank(const moe_status* s, int64_t i) { return i >= 0 && i < moe_status_num_failed_ranks(s) ? s->info.failed_ranks[static_cast<size_t>(i)] : -1; }
int64_t moe_status_group(const moe_status* s) { return s ? s->info.group : -1; }
int64_t moe_status_epoch(const moe_status* s) { return s ? s->info.epoch : -1; }
int64_t moe_status_sequence(const moe_status* s) { return s ? s->info.sequence : -1; }
void moe_status_destroy(moe_status* s) {
  if (s != moe::capi::OutOfMemory()) delete s;
}

void moe_string_destroy(char* s) { std::free(s); }

}  // extern "C"
