// Records the operations of one rank, always, for less than 100 ns each (recorder_bench.cc).
#ifndef MOE_TRANSPORT_FLIGHT_RECORDER_H_
#define MOE_TRANSPORT_FLIGHT_RECORDER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "transport/flight/format.h"
#include "transport/flight/tick_clock.h"

namespace moe {

class FlightRecorder {
 public:
  // `dir` (made if it is not there): the records are in dir/rank-N.flight while the rank runs and afterwards; an older file is
  // replaced. Empty, or when no file can be there (that is logged): in memory alone.
  static std::unique_ptr<FlightRecorder> Make(const std::string& dir, int64_t rank, int64_t world, int64_t epoch, const LogSink& log);
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  int64_t Now() { return clock_.Now(); }
  // One thread at a time writes (the engine's lock); anyone may read the file meanwhile.
  void AddGroup(int64_t id, int64_t index, absl::Span<const int64_t> members);
  // Sets index and posted.
  void Post(flight::Record* record);
  // An operation has ended. Sets the rest of its times and its state.
  void Done(flight::Record* record, int64_t started, bool ok);
  // The first call counts.
  void End(flight::RankState state, absl::string_view message);

  const flight::File& file() const { return *file_; }

 private:
  FlightRecorder() = default;
  flight::Slot* SlotOf(int64_t index) { return &file_->slots[index % flight::kRecords]; }

  flight::File* file_ = nullptr;
  TickClock clock_;
};

}  // namespace moe
#endif  // MOE_TRANSPORT_FLIGHT_RECORDER_H_
