// Executes the computing and exchanging operations of a stage's program (core/plan/program.h).
#ifndef MOE_CORE_MODEL_STAGE_RUNNER_H_
#define MOE_CORE_MODEL_STAGE_RUNNER_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/model/stage_chunk.h"
#include "core/plan/program.h"

namespace moe {

// What one run of a program works on.
struct StepWork {
  bool backward = false;             // forwards keep what backward needs
  bool training = false;
  uint64_t noise_key = 0;
  std::vector<Batch> micro;          // micro-batches of this rank, the same number on all ranks
  double grad_scale = 0;             // of the sum of -log p
  // What the last chunk does after its forward; absent: the loss.
  std::function<absl::Status(const ModuleContext& ctx, StageChunk* chunk, const ChunkPass& pass, int64_t micro)> head;

  double nll = 0;                    // sum of -log p of this rank
  RoutingSums sums;                  // of this rank, then of all
  bool sums_reduced = false;
  TensorView aux_LE;                 // gradient of the balancing loss, when it is known
  double z_coef = 0;
};

class StageRunner {
 public:
  // `chunks` of this stage, in order; `num_chunks` of all stages. All outlive the runner.
  StageRunner(Device* device, const Parallel& ranks, const std::vector<std::unique_ptr<StageChunk>>* chunks, int64_t num_chunks, RotaryCache* rotary)
      : device_(device), ranks_(ranks), chunks_(chunks), num_chunks_(num_chunks), rotary_(rotary) {}

  // Forgets what a run that failed has left.
  absl::Status Start();
  absl::Status Run(const Op& op, StepWork* work);
  // After the last op of a run: everything sent has arrived.
  absl::Status Finish();

 private:
  absl::Status Execute(const Op& op, StepWork* work);
  // A micro-batch in a chunk. It holds its arena until its last operation has run and what it sends has arrived.
  struct Live {
    int64_t chunk = 0, micro = 0;
    std::unique_ptr<Arena> arena;
    ChunkPass pass;
    WorkPtr receive;               // of x or dy
    std::vector<WorkPtr> sends;    // of y or dx
    bool computed = false;         // its last computation has run
    bool owes_send = false;        // what that made has not been posted
  };

  StageChunk* ChunkAt(int64_t chunk) const { return (*chunks_)[chunk / ranks_.stages()].get(); }
  absl::StatusOr<Live*> Get(int64_t chunk, int64_t micro, StepWork* work);   // made when new
  absl::StatusOr<std::unique_ptr<Arena>> TakeArena(int64_t chunk);
  absl::Status Retire(Live* live);        // if it is done
  absl::Status Reap(size_t keep);         // waits for the oldest retired ones beyond `keep`
  ModuleContext Context(Live* live, const StepWork& work) const;
  absl::Status Forward(const Op& op, StepWork* work);
  absl::Status Backward(const Op& op, StepWork* work);
  absl::Status BackwardWeight(const Op& op, StepWork* work);
  absl::Status Exchange(const Op& op, StepWork* work);
  absl::StatusOr<TensorView> Hidden(const Live& live) const;   // a tensor of hidden states in its arena

  Device* device_;
  Parallel ranks_;
  const std::vector<std::unique_ptr<StageChunk>>* chunks_;
  int64_t num_chunks_;
  RotaryCache* rotary_;
  std::map<std::pair<int64_t, int64_t>, std::unique_ptr<Live>> live_;   // by chunk and micro-batch
  std::deque<std::unique_ptr<Live>> retired_;                          // what they send may be on its way
  std::map<int64_t, std::vector<std::unique_ptr<Arena>>> arenas_;      // free ones, by chunk
};

}  // namespace moe
#endif  // MOE_CORE_MODEL_STAGE_RUNNER_H_
