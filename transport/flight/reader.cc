#include "transport/flight/reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "transport/flight/process.h"

namespace moe::flight {
namespace {

bool Read(const Slot& slot, Record* record) {
  uint64_t words[kWords];
  for (int attempt = 0; attempt < 100; ++attempt) {
    const uint64_t before = slot.version.load(std::memory_order_acquire);
    if (before == 0) return false;   // never written
    for (int64_t i = 0; i < kWords; ++i) words[i] = slot.words[i].load(std::memory_order_acquire);
    // A rank that was killed in the middle leaves an odd version for ever: what is there is taken when its index fits (see below).
    if (slot.version.load(std::memory_order_relaxed) == before && (before % 2 == 0 || attempt == 99)) break;
  }
  std::memcpy(record, words, sizeof(*record));
  record->what[sizeof(record->what) - 1] = 0;
  return true;
}

std::string Text(const char* chars, size_t room) { return std::string(chars, strnlen(chars, room)); }

Process ProcessOf(const Header& h, const std::string& host) {
  char here[64] = {};
  gethostname(here, sizeof(here) - 1);
  if (host != here) return Process::kUnknown;
  const ProcessStat stat = StatOf(h.pid);
  if (stat.start_ticks != h.start_ticks || stat.state == ' ' || stat.state == 'Z' || stat.state == 'X') return Process::kGone;
  return stat.state == 'T' || stat.state == 't' ? Process::kStopped : Process::kRunning;
}

absl::Status NoRecorder(const std::string& path, const char* why) { return absl::DataLossError(absl::StrCat(path, " is not the file of a flight recorder (", why, ")")); }

absl::StatusOr<RankFlight> ReadOne(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
  const auto close_fd = absl::MakeCleanup([&] { close(fd); });
  struct stat s {};
  if (fstat(fd, &s) != 0 || s.st_size != static_cast<off_t>(sizeof(File))) return NoRecorder(path, "its size");
  void* map = mmap(nullptr, sizeof(File), PROT_READ, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
  const auto unmap = absl::MakeCleanup([&] { munmap(map, sizeof(File)); });
  const File& f = *static_cast<const File*>(map);
  const Header& h = f.header;
  if (std::memcmp(h.magic, kMagic, sizeof(kMagic)) != 0) return NoRecorder(path, "its beginning");
  RankFlight r;
  r.rank = h.rank;
  r.world = h.world;
  r.epoch = h.epoch;
  r.pid = h.pid;
  r.realtime_offset = h.realtime_offset;
  r.host = Text(h.host, sizeof(h.host));
  const int64_t state = h.state.load(std::memory_order_acquire);
  if (r.world < 1 || r.rank < 0 || r.rank >= r.world || state < 0 || state > 2) return NoRecorder(path, "its header");
  r.state = static_cast<RankState>(state);
  if (r.state != RankState::kRunning) {
    r.ended = h.ended;
    r.message = Text(h.message, sizeof(h.message));
  }
  r.process = ProcessOf(h, r.host);
  const int64_t groups = std::clamp<int64_t>(h.num_groups.load(std::memory_order_acquire), 0, kGroups);
  for (int64_t i = 0; i < groups; ++i) {
    const GroupEntry& e = f.groups[i];
    Group g{e.id, e.size, e.index, {}};
    if (e.members_at >= 0 && e.size >= 0 && e.members_at + e.size <= kMembers) g.members.assign(f.members + e.members_at, f.members + e.members_at + e.size);
    r.groups[g.id] = std::move(g);
  }
  r.num_operations = h.next_index.load(std::memory_order_acquire);
  for (int64_t i = 0; i < kRecords; ++i) {
    Record record;
    if (Read(f.slots[i], &record) && record.index >= 0 && record.index % kRecords == i) r.records.push_back(record);
  }
  std::sort(r.records.begin(), r.records.end(), [](const Record& a, const Record& b) { return a.index < b.index; });
  return r;
}

}  // namespace

absl::StatusOr<std::vector<RankFlight>> ReadFlights(const std::string& dir) {
  DIR* d = opendir(dir.c_str());
  if (d == nullptr) return absl::NotFoundError(absl::StrCat(dir, ": ", std::strerror(errno)));
  std::vector<std::string> names;
  while (const dirent* e = readdir(d)) {
    const std::string name = e->d_name;
    if (absl::StartsWith(name, "rank-") && absl::EndsWith(name, ".flight")) names.push_back(name);
  }
  closedir(d);
  if (names.empty()) return absl::NotFoundError(absl::StrCat(dir, " holds no file of a flight recorder (rank-N.flight)"));
  std::vector<RankFlight> out;
  for (const std::string& name : names) {
    MOE_ASSIGN_OR_RETURN(RankFlight r, ReadOne(absl::StrCat(dir, "/", name)));
    out.push_back(std::move(r));
  }
  std::sort(out.begin(), out.end(), [](const RankFlight& a, const RankFlight& b) { return a.rank < b.rank; });
  return out;
}

}  // namespace moe::flight
