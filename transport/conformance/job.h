// The harness of the conformance suite: runs one case on every rank of a job, as threads (inproc) or as processes (this
// binary started again, before it has any thread), with a hard deadline, so that a hang is a failure.
#ifndef MOE_TRANSPORT_CONFORMANCE_JOB_H_
#define MOE_TRANSPORT_CONFORMANCE_JOB_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "core/comm/communicator.h"
#include "transport/inproc/inproc.h"

namespace moe::conformance {

enum class Lane { kInproc, kShm, kTcp };
const char* Name(Lane lane);

// What a rank's case gets.
struct Rank {
  Lane lane = Lane::kInproc;
  int64_t rank = 0, size = 1;
  int port = 0;
  std::string job_id = "conformance";
  absl::Duration timeout = absl::Seconds(20);
  absl::Duration heartbeat = absl::Seconds(10);
  std::shared_ptr<InprocWorld> world;

  // This rank's end of the transport; a second call in the same case starts a second job (processes only).
  absl::StatusOr<std::unique_ptr<Transport>> Make() const;
  std::vector<int64_t> Everybody() const;
};

using Case = absl::Status (*)(const Rank&);
// Cases by name: the child process looks up what the parent asked for.
Case FindCase(const std::string& name);

struct Result {
  bool exited = false;    // by itself, before the deadline
  int signal = 0;         // that killed it
  std::string error;      // empty: the case returned OK
};

struct Job {
  Lane lane = Lane::kInproc;
  int64_t size = 2;
  std::string name;                        // of the case
  int port = 0;                            // 0: a free one
  std::vector<int64_t> absent;             // ranks that are never started
  std::vector<int64_t> stopped;            // ranks that stop themselves: killed when the others have ended
  absl::Duration timeout = absl::Seconds(20);
  absl::Duration deadline = absl::Seconds(90);
};

// By rank. Absent ranks have exited = true and no error.
std::vector<Result> RunJob(const Job& job);
// The ranks that did not return OK, one per line; empty: all well.
std::string Failures(const std::vector<Result>& results);

int FreePort();

// main() of the child; -1: this process is not one.
int ChildMain(int argc, char** argv);

}  // namespace moe::conformance
#endif  // MOE_TRANSPORT_CONFORMANCE_JOB_H_
