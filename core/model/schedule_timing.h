// How long a pipeline schedule really takes: the stage runner executes a step's programs, with real messages between the stages,
// over chunks that compute nothing and only take the time they are told to.
#ifndef MOE_CORE_MODEL_SCHEDULE_TIMING_H_
#define MOE_CORE_MODEL_SCHEDULE_TIMING_H_

#include <memory>
#include <vector>

#include "core/model/stage_runner.h"

namespace moe {

// Seconds of all layers of a stage for one micro-batch; the virtual stages of a stage share them equally.
struct StageTimes {
  double forward = 0;
  double backward = 0;          // of inputs and weights
  double backward_weight = 0;   // the part of `backward` that zero_bubble does later
};

// One step of one stage, in seconds of std::chrono::steady_clock.
struct StageTiming {
  double first = 0, last = 0;   // first forward begins, last backward ends
  double busy = 0;              // in forwards and backwards
};

// How a chunk takes time. A busy loop needs a core of its own; where stages outnumber cores they wait for the clock instead.
enum class Emulation { kBusyLoop, kTimedWait };

class EmulatedStage {
 public:
  // Stage pp->rank() of pp->size(), which is shape.stages. The device and `pp` outlive the result. Errors as MakeStepProgram.
  static absl::StatusOr<std::unique_ptr<EmulatedStage>> Make(const ScheduleShape& shape, const StageTimes& times, Emulation emulation, Device* device, Communicator* pp);
  ~EmulatedStage();

  // All stages call it together.
  absl::StatusOr<StageTiming> Step();

 private:
  class TimedChunk;
  EmulatedStage() = default;

  StageProgram program_;
  Parallel ranks_;
  std::vector<int32_t> id_ = {0};
  StepWork work_;
  std::vector<std::unique_ptr<StageChunk>> chunks_;
  std::unique_ptr<StageRunner> runner_;
  StageTiming timing_;
};

}  // namespace moe
#endif  // MOE_CORE_MODEL_SCHEDULE_TIMING_H_
