// The file of a flight recorder: a header, the groups that the rank was in, and a ring of its last operations. It is memory that the
// rank writes while it runs, so it tells the last moments of a rank that was killed or stopped, too.
#ifndef MOE_TRANSPORT_FLIGHT_FORMAT_H_
#define MOE_TRANSPORT_FLIGHT_FORMAT_H_

#include <atomic>
#include <cstdint>

namespace moe::flight {

constexpr char kMagic[8] = {'M', 'O', 'E', 'F', 'L', 'T', '0', '1'};
constexpr int64_t kRecords = 4096;
constexpr int64_t kGroups = 256;
constexpr int64_t kMembers = 8192;   // of all groups together

enum class RankState : int64_t { kRunning = 0, kLeft = 1, kFailed = 2 };
enum class OpState : uint8_t { kPosted = 0, kStarted = 1, kDone = 2, kFailed = 3 };

// One operation. Times are nanoseconds of CLOCK_MONOTONIC; 0: not yet.
struct Record {
  int64_t index = -1;       // of the rank's operations: 0, 1, 2 ...
  int64_t group = -1;
  int64_t sequence = -1;    // in the group; -1: none (send, recv, the making of a group)
  int64_t count = 0;        // elements or bytes, as the operation counts
  int64_t bytes = 0;        // that this rank sends to others, as far as known when it is posted
  int32_t peer = -1;        // global rank of send and recv
  int32_t reserved = 0;
  uint8_t kind = 0;         // MessageKind
  uint8_t dtype = 0, reduce = 0;
  OpState state = OpState::kPosted;
  int32_t root = -1;
  int64_t posted = 0, started = 0, done = 0;   // started: the first message of it has ended
  char what[40] = {};       // what it was for
};
static_assert(sizeof(Record) == 120);
constexpr int64_t kWords = sizeof(Record) / sizeof(uint64_t);

// A record behind a sequence lock: odd while it is written.
struct Slot {
  std::atomic<uint64_t> version;
  std::atomic<uint64_t> words[kWords];
};
static_assert(sizeof(Slot) == 128);

struct GroupEntry {
  int64_t id = -1, size = 0, index = 0;
  int64_t members_at = -1;   // in the list of members; -1: no room was left
};

struct Header {
  char magic[8];
  int64_t rank, world, epoch, pid;
  int64_t start_ticks;          // of the process, as in /proc/PID/stat: a number that is used again is another process
  int64_t realtime_offset;      // CLOCK_REALTIME - CLOCK_MONOTONIC, nanoseconds
  char host[64];
  std::atomic<int64_t> next_index;    // operations posted so far
  std::atomic<int64_t> num_groups, num_members;
  std::atomic<int64_t> state;         // RankState; the message is whole when it is not kRunning
  int64_t ended;                      // when, CLOCK_MONOTONIC
  char message[2048];
  char reserved[1888];
};
static_assert(sizeof(Header) == 4096);

struct File {
  Header header;
  GroupEntry groups[kGroups];
  int32_t members[kMembers];
  Slot slots[kRecords];
};

}  // namespace moe::flight
#endif  // MOE_TRANSPORT_FLIGHT_FORMAT_H_
