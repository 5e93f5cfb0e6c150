#include "transport/flight/process.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace moe {

ProcessStat StatOf(int64_t pid) {
  ProcessStat out;
  char text[1024];
  std::snprintf(text, sizeof(text), "/proc/%lld/stat", static_cast<long long>(pid));
  const int fd = open(text, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return out;
  const ssize_t n = read(fd, text, sizeof(text) - 1);
  close(fd);
  text[n > 0 ? n : 0] = 0;
  // The name in brackets may hold anything; what follows the last bracket is numbered from field 3.
  const char* rest = std::strrchr(text, ')');
  long long ticks = 0;
  if (rest != nullptr && std::sscanf(rest + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lld", &out.state, &ticks) == 2) out.start_ticks = ticks;
  return out;
}

}  // namespace moe
