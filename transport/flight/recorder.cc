#include "transport/flight/recorder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <new>

#include "transport/flight/process.h"

namespace moe {
namespace {

using flight::File;
using flight::Record;
using flight::Slot;

int64_t Realtime() {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// Memory of the size of a File: a new file of that name, or null and errno.
void* MapFile(const std::string& path) {
  // Beside, then renamed: whoever reads an older file goes on reading that one.
  const std::string fresh = path + ".new";
  const int fd = open(fresh.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return nullptr;
  void* map = MAP_FAILED;
  // With its blocks: a full disk is an error here, not a SIGBUS later.
  errno = posix_fallocate(fd, 0, sizeof(File));
  if (errno == 0) map = mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const int error = errno;
  close(fd);
  if (map != MAP_FAILED && rename(fresh.c_str(), path.c_str()) == 0) return map;
  if (map != MAP_FAILED) munmap(map, sizeof(File));
  unlink(fresh.c_str());
  errno = error;
  return nullptr;
}

// Words first .. last - 1 of the record.
void Write(Slot* slot, const Record& record, int64_t first, int64_t last) {
  uint64_t words[flight::kWords];
  std::memcpy(words, &record, sizeof(record));
  const uint64_t version = slot->version.load(std::memory_order_relaxed) | 1;
  slot->version.store(version, std::memory_order_relaxed);
  // Released one by one: a reader that sees one of them sees the odd version, too.
  for (int64_t i = first; i < last; ++i) slot->words[i].store(words[i], std::memory_order_release);
  slot->version.store(version + 1, std::memory_order_release);
}

}  // namespace

std::unique_ptr<FlightRecorder> FlightRecorder::Make(const std::string& dir, int64_t rank, int64_t world, int64_t epoch, const LogSink& log) {
  std::unique_ptr<FlightRecorder> r(new FlightRecorder);
  void* memory = nullptr;
  if (!dir.empty()) {
    if (mkdir(dir.c_str(), 0777) == 0 || errno == EEXIST) memory = MapFile(absl::StrCat(dir, "/rank-", rank, ".flight"));
    if (memory == nullptr) Log(log, LogLevel::kWarning, absl::StrCat("flight recorder: no file in ", dir, " (", std::strerror(errno), "): the records are in memory alone and `moe doctor` will not see this rank"));
  }
  if (memory == nullptr) {
    memory = mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
  }
  r->file_ = new (memory) File;
  for (Slot& s : r->file_->slots) s.version.store(0, std::memory_order_relaxed);
  flight::Header& h = r->file_->header;
  h.rank = rank;
  h.world = world;
  h.epoch = epoch;
  h.pid = getpid();
  h.start_ticks = StartTicks(h.pid);
  h.realtime_offset = Realtime() - TickClock::Monotonic();
  gethostname(h.host, sizeof(h.host) - 1);
  h.host[sizeof(h.host) - 1] = 0;
  for (auto* counter : {&h.next_index, &h.num_groups, &h.num_members, &h.state}) counter->store(0, std::memory_order_relaxed);
  h.ended = 0;
  h.message[0] = 0;
  std::atomic_thread_fence(std::memory_order_release);
  std::memcpy(h.magic, flight::kMagic, sizeof(h.magic));
  return r;
}

FlightRecorder::~FlightRecorder() { munmap(file_, sizeof(File)); }

void FlightRecorder::AddGroup(int64_t id, int64_t index, absl::Span<const int64_t> members) {
  flight::Header& h = file_->header;
  const int64_t at = h.num_groups.load(std::memory_order_relaxed), first = h.num_members.load(std::memory_order_relaxed), n = static_cast<int64_t>(members.size());
  if (at == flight::kGroups) return;
  flight::GroupEntry& g = file_->groups[at];
  g.id = id;
  g.size = n;
  g.index = index;
  g.members_at = -1;
  if (first + n <= flight::kMembers) {
    g.members_at = first;
    for (int64_t i = 0; i < n; ++i) file_->members[first + i] = static_cast<int32_t>(members[i]);
    h.num_members.store(first + n, std::memory_order_relaxed);
  }
  h.num_groups.store(at + 1, std::memory_order_release);
}

void FlightRecorder::Post(Record* record) {
  std::atomic<int64_t>& next = file_->header.next_index;
  record->index = next.load(std::memory_order_relaxed);
  record->posted = Now();
  Write(SlotOf(record->index), *record, 0, flight::kWords);
  next.store(record->index + 1, std::memory_order_release);
}

void FlightRecorder::Done(Record* record, int64_t started, bool ok) {
  // Many operations later its place may be another's.
  if (file_->header.next_index.load(std::memory_order_relaxed) - record->index > flight::kRecords) return;
  record->started = started;
  record->done = Now();
  record->state = ok ? flight::OpState::kDone : flight::OpState::kFailed;
  // What has changed: the state and the times.
  Write(SlotOf(record->index), *record, offsetof(Record, kind) / 8, offsetof(Record, what) / 8);
}

void FlightRecorder::End(flight::RankState state, absl::string_view message) {
  flight::Header& h = file_->header;
  if (h.state.load(std::memory_order_relaxed) != 0) return;
  const size_t n = std::min(message.size(), sizeof(h.message) - 1);
  std::memcpy(h.message, message.data(), n);
  h.message[n] = 0;
  h.ended = Now();
  h.state.store(static_cast<int64_t>(state), std::memory_order_release);
}

}  // namespace moe
