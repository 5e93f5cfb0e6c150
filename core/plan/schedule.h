// In which order a pipeline stage computes: the forwards and backwards of its virtual stages for all micro-batches.
//   gpipe        all forwards, then all backwards in reverse                                     arXiv 1811.06965
//   1f1b         P - 1 - stage forwards, then one forward and one backward in turn               arXiv 2104.04473
//   interleaved  1f1b over v virtual stages per rank, micro-batches in rounds of P               arXiv 2104.04473
//   zero_bubble  ZB-H1: backward split in two, the weights' halves fill the bubble               arXiv 2401.10241
// Bubbles of a stage, with F and B the forward and backward time of the stage's layers and W the weights' part of B:
//   gpipe, 1f1b (P-1)(F+B); interleaved (P-1)(F+B)/v; zero_bubble (P-1)(F+B-2W).
#ifndef MOE_CORE_PLAN_SCHEDULE_H_
#define MOE_CORE_PLAN_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/config/config.pb.h"

namespace moe {

enum class ScheduleKind { kGpipe, kOneFOneB, kInterleaved, kZeroBubble };
const char* Name(ScheduleKind kind);                          // "gpipe", "1f1b", "interleaved", "zero_bubble"
absl::StatusOr<ScheduleKind> ParseScheduleKind(const std::string& name);

struct ScheduleShape {
  ScheduleKind kind = ScheduleKind::kOneFOneB;
  int64_t stages = 1;           // P
  int64_t virtual_stages = 1;   // v per stage; virtual stage i (0 .. P v - 1, in the order of the layers) is on stage i % P
  int64_t micro_batches = 1;    // M
};

enum class TaskKind { kForward, kBackward, kBackwardInput, kBackwardWeight };
struct Task {
  TaskKind kind = TaskKind::kForward;
  int64_t chunk = 0;   // global index of the virtual stage
  int64_t micro = 0;
};

// Tasks of each stage, in order. INVALID_ARGUMENT naming field, value and the nearest that work: pipeline.virtual_stages > 1
// needs `interleaved` (or gpipe), interleaved needs micro-batches in multiples of the stages.
absl::StatusOr<std::vector<std::vector<Task>>> MakeSchedule(const ScheduleShape& shape);

// Consecutive layers that a stage computes as a unit.
struct Chunk {
  int64_t stage = 0, first_layer = 0, num_layers = 0;
  bool embedding = false, head = false;   // the first and the last one
};
// Virtual stages in the order of the layers, by pipeline.stage_layers or balanced. INVALID_ARGUMENT naming field, value and
// remedy: more virtual stages than layers, a list of another length or sum.
absl::StatusOr<std::vector<Chunk>> PlaceLayers(const config::Config& c, int64_t stages);

// Virtual stages per stage of a configuration (0 in the field: 2 with interleaved and more than one stage, else 1).
int64_t VirtualStages(const config::Config& c, int64_t stages);
// Sequences per micro-batch of a data-parallel rank that has `share` sequences: train.micro_batch, or the whole share, or with
// a pipeline what makes 4 micro-batches per stage.
int64_t MicroBatchSize(const config::Config& c, int64_t stages, int64_t share);

}  // namespace moe
#endif  // MOE_CORE_PLAN_SCHEDULE_H_
