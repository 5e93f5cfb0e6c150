// Ranks as threads of one process. The receiver copies straight from the sender's buffer; a small message is copied into
// its envelope, so that the sender need not wait.
#ifndef MOE_TRANSPORT_INPROC_INPROC_H_
#define MOE_TRANSPORT_INPROC_INPROC_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "core/comm/communicator.h"

namespace moe {

// What the ranks share. Lives as long as any of them.
class InprocWorld {
 public:
  // `timeout`: of CreateGroup and Shutdown.
  explicit InprocWorld(int64_t world_size, absl::Duration timeout = absl::Seconds(60));
  ~InprocWorld();
  InprocWorld(const InprocWorld&) = delete;
  InprocWorld& operator=(const InprocWorld&) = delete;

  int64_t world_size() const { return world_size_; }
  absl::Duration timeout() const { return timeout_; }

  struct State;
  State* state() { return state_.get(); }

 private:
  const int64_t world_size_;
  const absl::Duration timeout_;
  const std::unique_ptr<State> state_;
};

// Called once for each rank, by any thread; does not wait for the others. A rank whose transport is destroyed without
// Shutdown poisons the others with UNAVAILABLE.
// `flight_dir`: of the flight recorder's file; empty: in memory alone.
absl::StatusOr<std::unique_ptr<Transport>> MakeInprocTransport(std::shared_ptr<InprocWorld> world, int64_t rank, const std::string& flight_dir = "");

}  // namespace moe
#endif  // MOE_TRANSPORT_INPROC_INPROC_H_
