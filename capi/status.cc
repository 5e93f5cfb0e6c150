#include <cstdlib>
#include <cstring>

#include "capi/internal.h"

#include <unistd.h>

struct moe_status {
  int32_t code;
  std::string message;
  moe::FailureInfo info;
};

namespace moe::capi {

moe_status* ToStatus(const absl::Status& s) {
  if (s.ok()) return nullptr;
  return new moe_status{static_cast<int32_t>(s.code()), std::string(s.message()), GetFailureInfo(s)};
}

char* ToString(const std::string& s) {
  char* out = static_cast<char*>(std::malloc(s.size() + 1));
  if (out == nullptr) throw std::bad_alloc();
  std::memcpy(out, s.c_str(), s.size() + 1);
  return out;
}

absl::Status NullArgument(const char* name) { return InvalidArgument("argument ", name, " is NULL"); }

absl::Status CheckStruct(const char* name, const void* data, size_t known, size_t smallest) {
  size_t size;
  const void* extension;
  std::memcpy(&size, data, sizeof(size));
  if (size < smallest || size > (size_t{1} << 20))
    return InvalidArgument(name, ".struct_size is ", size, "; set it to sizeof the struct (MOE_INIT does)");
  std::memcpy(&extension, static_cast<const char*>(data) + sizeof(size_t), sizeof(extension));
  if (extension != nullptr) return InvalidArgument(name, ".extension is not NULL; this library (", MOE_VERSION_MAJOR, ".", MOE_VERSION_MINOR, ") knows no extension");
  for (size_t i = known; i < size; ++i)
    if (static_cast<const char*>(data)[i] != 0)
      return InvalidArgument(name, " is ", size, " bytes long, this library knows ", known, ", and a byte behind them is set: it was made for a newer library");
  return absl::OkStatus();
}

pid_t CurrentProcess() { return ::getpid(); }

}  // namespace moe::capi

extern "C" {

int32_t moe_status_code(const moe_status* s) { return s ? s->code : MOE_OK; }
const char* moe_status_message(const moe_status* s) { return s ? s->message.c_str() : ""; }
int64_t moe_status_origin_rank(const moe_status* s) { return s ? s->info.origin_rank : -1; }
int64_t moe_status_num_failed_ranks(const moe_status* s) { return s ? static_cast<int64_t>(s->info.failed_ranks.size()) : 0; }
int64_t moe_status_failed_rank(const moe_status* s, int64_t i) { return i >= 0 && i < moe_status_num_failed_ranks(s) ? s->info.failed_ranks[i] : -1; }
int64_t moe_status_group(const moe_status* s) { return s ? s->info.group : -1; }
int64_t moe_status_epoch(const moe_status* s) { return s ? s->info.epoch : -1; }
int64_t moe_status_sequence(const moe_status* s) { return s ? s->info.sequence : -1; }
void moe_status_destroy(moe_status* s) { delete s; }

void moe_string_destroy(char* s) { std::free(s); }

}  // extern "C"
