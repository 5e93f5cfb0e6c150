// Files whole or not at all, and errno in words.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/checkpoint/safetensors.h"

namespace moe {
namespace {
constexpr int64_t kLargestCall = int64_t{1} << 30;   // Linux moves no more than 2 GiB at once
}  // namespace

absl::Status FileError(const std::string& what, const std::string& path, int error) {
  const std::string text = absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(error));
  switch (error) {
    case ENOENT: case ENOTDIR: return absl::NotFoundError(text);
    case EACCES: case EPERM: case EROFS: return absl::PermissionDeniedError(text);
    case ENOSPC: case EDQUOT: case EFBIG: return absl::ResourceExhaustedError(absl::StrCat(text, "; free some space, the earlier checkpoints are untouched"));
    case EEXIST: return absl::AlreadyExistsError(text);
    default: return absl::InternalError(text);
  }
}

absl::Status WriteAll(int fd, const std::string& path, const void* data, int64_t bytes) {
  const char* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(fd, p, static_cast<size_t>(std::min(bytes, kLargestCall)));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError("write", path, errno);
    p += n;
    bytes -= n;
  }
  return absl::OkStatus();
}

absl::Status ReadAllAt(int fd, const std::string& path, int64_t at, void* out, int64_t bytes) {
  char* p = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t n = ::pread(fd, p, static_cast<size_t>(std::min(bytes, kLargestCall)), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError("read", path, errno);
    if (n == 0) return absl::DataLossError(absl::StrCat(path, ": ends ", bytes, " bytes too early"));
    p += n;
    at += n;
    bytes -= n;
  }
  return absl::OkStatus();
}

absl::Status WriteFileAtomically(const std::string& path, const std::string& text) {
  const std::string tmp = path + ".tmp";
  const int fd = ::open(tmp.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return FileError("create", tmp, errno);
  absl::Status s = WriteAll(fd, tmp, text.data(), static_cast<int64_t>(text.size()));
  if (s.ok() && ::fsync(fd) != 0) s = FileError("sync", tmp, errno);
  if (::close(fd) != 0 && s.ok()) s = FileError("close", tmp, errno);
  if (s.ok() && ::rename(tmp.c_str(), path.c_str()) != 0) s = FileError("rename", tmp, errno);
  if (!s.ok()) ::unlink(tmp.c_str());
  return s;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FileError("open", path, errno);
  std::string out;
  char block[65536];
  for (;;) {
    const ssize_t n = ::read(fd, block, sizeof(block));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const absl::Status s = FileError("read", path, errno);
      ::close(fd);
      return s;
    }
    if (n == 0) break;
    out.append(block, static_cast<size_t>(n));
  }
  ::close(fd);
  return out;
}

absl::Status SyncFolder(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return FileError("open", path, errno);
  const int rc = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  return rc == 0 ? absl::OkStatus() : FileError("sync", path, error);
}

}  // namespace moe
