// The files of all ranks of a job, read while they are written or afterwards.
#ifndef MOE_TRANSPORT_FLIGHT_READER_H_
#define MOE_TRANSPORT_FLIGHT_READER_H_

#include <map>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "transport/flight/format.h"

namespace moe::flight {

enum class Process { kUnknown, kRunning, kStopped, kGone };   // unknown: of another machine

struct Group {
  int64_t id = -1, size = 0, index = 0;
  std::vector<int64_t> members;   // empty: more than the file had room for
};

struct RankFlight {
  int64_t rank = 0, world = 1, epoch = 0, pid = 0, realtime_offset = 0;
  std::string host, message;
  RankState state = RankState::kRunning;
  int64_t ended = 0, num_operations = 0;
  Process process = Process::kUnknown;
  std::map<int64_t, Group> groups;   // by id
  std::vector<Record> records;       // by index; those that are left
  // On the clock that all ranks share.
  int64_t Wall(int64_t monotonic) const { return monotonic + realtime_offset; }
};

// dir/rank-*.flight, by rank. NOT_FOUND when there is none, DATA_LOSS for a file that is no recorder's.
absl::StatusOr<std::vector<RankFlight>> ReadFlights(const std::string& dir);

}  // namespace moe::flight
#endif  // MOE_TRANSPORT_FLIGHT_READER_H_
