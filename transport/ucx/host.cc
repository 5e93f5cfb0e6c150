#include "transport/ucx/host.h"

#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <random>

namespace moe {
namespace {

// Measured: one worker of UCX 1.13 takes 4.2 MB.
constexpr int64_t kBytesPerRank = 5 << 20;

}  // namespace

std::string HostIdentity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char host[256] = "", ipc[64] = "";
  gethostname(host, sizeof(host) - 1);
  const ssize_t n = readlink("/proc/self/ns/ipc", ipc, sizeof(ipc) - 1);
  struct stat shm{};
  const bool has_shm = stat("/dev/shm", &shm) == 0;
  return absl::StrCat(boot, " ", host, " ", std::string(ipc, n > 0 ? n : 0), " ", has_shm ? absl::StrCat(shm.st_dev) : "-");
}

CmaProbe::CmaProbe() : secret_(std::make_unique<uint64_t>(static_cast<uint64_t>(std::random_device()()) << 32 | std::random_device()())) {
#ifdef PR_SET_PTRACER
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);  // as UCX does, for Yama's ptrace_scope 1
#endif
}

std::string CmaProbe::Card() const {
  const Where w{getpid(), reinterpret_cast<uint64_t>(secret_.get()), *secret_};
  return std::string(reinterpret_cast<const char*>(&w), sizeof(w));
}

bool CmaProbe::CanRead(const std::string& card) {
  Where w;
  if (card.size() != sizeof(w)) return false;
  std::memcpy(&w, card.data(), sizeof(w));
  uint64_t read = 0;
  iovec here{&read, sizeof(read)}, there{reinterpret_cast<void*>(w.address), sizeof(read)};
  return process_vm_readv(static_cast<pid_t>(w.pid), &here, 1, &there, 1, 0) == sizeof(read) && read == w.secret;
}

absl::Status CheckSharedMemory(const std::string& directory, int64_t ranks) {
  struct statvfs s{};
  if (statvfs(directory.c_str(), &s) != 0) {
    return FailedPrecondition(directory, " cannot be used (", std::strerror(errno), "); mount a tmpfs there or set transport.ucx_tls=tcp,self");
  }
  const int64_t free = static_cast<int64_t>(s.f_bavail) * static_cast<int64_t>(s.f_frsize), size = static_cast<int64_t>(s.f_blocks) * static_cast<int64_t>(s.f_frsize);
  const int64_t need = ranks * kBytesPerRank;
  if (free >= need) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(directory, " has ", free >> 10, " KiB free of ", size >> 10, " KiB; ", ranks, " ranks on this machine need about ", need >> 10,
                                                   " KiB for shared memory: enlarge it (docker run --shm-size=64m, or mount -o remount,size=64m ", directory,
                                                   ") or set transport.ucx_tls=tcp,self"));
}

}  // namespace moe
