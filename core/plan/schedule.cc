#include "core/plan/schedule.h"

#include <algorithm>

namespace moe {
namespace {

constexpr const char* kNames[] = {"gpipe", "1f1b", "interleaved", "zero_bubble"};

// Tasks of one stage, which appends them.
class StageTasks {
 public:
  StageTasks(const ScheduleShape& shape, int64_t stage) : s_(shape), stage_(stage), total_(shape.micro_batches * shape.virtual_stages) {}

  // All forwards in rounds of P micro-batches, in a round chunk by chunk; backwards in exactly the opposite order.
  std::vector<Task> Gpipe() {
    for (int64_t k = 0; k < total_; ++k) Add(TaskKind::kForward, ForwardAt(k));
    for (int64_t k = total_ - 1; k >= 0; --k) Add(TaskKind::kBackward, ForwardAt(k));
    return std::move(tasks_);
  }

  // `warmup` forwards, then a forward and a backward in turn, then the backwards that are left.
  std::vector<Task> OneForwardOneBackward(int64_t warmup) {
    warmup = std::min(warmup, total_);
    for (int64_t k = 0; k < warmup; ++k) Add(TaskKind::kForward, ForwardAt(k));
    for (int64_t k = warmup; k < total_; ++k) {
      Add(TaskKind::kForward, ForwardAt(k));
      Add(TaskKind::kBackward, BackwardAt(k - warmup));
    }
    for (int64_t k = total_ - warmup; k < total_; ++k) Add(TaskKind::kBackward, BackwardAt(k));
    return std::move(tasks_);
  }

  // ZB-H1. A stage holds the activations of P - stage micro-batches, as with 1f1b, and may owe the weights' halves of `stage`
  // more: P in all on every stage. What the last stages owe, they do while the first ones still wait for gradients.
  std::vector<Task> ZeroBubble() {
    const int64_t warmup = std::min(s_.stages - 1 - stage_, total_);
    int64_t owed = 0, weights_done = 0;
    const auto weights = [&] {
      Add(TaskKind::kBackwardWeight, ForwardAt(weights_done++));
      --owed;
    };
    for (int64_t k = 0; k < warmup; ++k) Add(TaskKind::kForward, ForwardAt(k));
    for (int64_t k = 0; k < total_; ++k) {
      if (k + warmup < total_) Add(TaskKind::kForward, ForwardAt(k + warmup));
      Add(TaskKind::kBackwardInput, ForwardAt(k));
      if (++owed > stage_ || k + warmup >= total_) weights();
    }
    while (owed > 0) weights();
    return std::move(tasks_);
  }

 private:
  struct Where { int64_t local_chunk, micro; };

  // The k-th forward of a stage: rounds of P micro-batches (the last round may be shorter), chunk by chunk.
  Where ForwardAt(int64_t k) const {
    const int64_t round = k / (s_.stages * s_.virtual_stages), first = round * s_.stages, n = std::min(s_.stages, s_.micro_batches - first);
    const int64_t in_round = k - first * s_.virtual_stages;
    return {in_round / n, first + in_round % n};
  }
  // The same with the last chunk first.
  Where BackwardAt(int64_t k) const {
    const Where w = ForwardAt(k);
    return {s_.virtual_stages - 1 - w.local_chunk, w.micro};
  }
  void Add(TaskKind kind, Where w) { tasks_.push_back({kind, w.local_chunk * s_.stages + stage_, w.micro}); }

  const ScheduleShape& s_;
  const int64_t stage_, total_;   // forwards of the stage
  std::vector<Task> tasks_;
};

absl::Status CheckShape(const ScheduleShape& s) {
  if (s.stages < 1) return InvalidArgument("mesh.pp is ", s.stages, ", must be at least 1");
  if (s.virtual_stages < 1) return InvalidArgument("pipeline.virtual_stages is ", s.virtual_stages, ", must be at least 1");
  if (s.micro_batches < 1) return InvalidArgument("the number of micro-batches is ", s.micro_batches, ", must be at least 1");
  if (s.virtual_stages > 1 && (s.kind == ScheduleKind::kOneFOneB || s.kind == ScheduleKind::kZeroBubble))
    return InvalidArgument("pipeline.virtual_stages is ", s.virtual_stages, " and pipeline.kind is ", Name(s.kind),
                           ", which has one virtual stage per stage; use pipeline.kind=interleaved (or gpipe), or pipeline.virtual_stages=1");
  if (s.kind == ScheduleKind::kInterleaved && s.micro_batches % s.stages != 0) {
    const int64_t below = s.micro_batches / s.stages * s.stages, above = below + s.stages;
    return InvalidArgument("the number of micro-batches is ", s.micro_batches, " and pipeline.kind is interleaved, which takes them in rounds of mesh.pp ", s.stages, "; the nearest that work: ",
                           below > 0 ? absl::StrCat(below, " or ", above) : absl::StrCat(above), " (change train.micro_batch or train.global_batch), or use pipeline.kind=1f1b");
  }
  return absl::OkStatus();
}

}  // namespace

const char* Name(ScheduleKind kind) { return kNames[static_cast<int>(kind)]; }

absl::StatusOr<ScheduleKind> ParseScheduleKind(const std::string& name) {
  for (int i = 0; i < 4; ++i)
    if (name == kNames[i]) return static_cast<ScheduleKind>(i);
  return InvalidArgument("pipeline.kind is '", name, "', must be one of gpipe, 1f1b, interleaved, zero_bubble");
}

absl::StatusOr<std::vector<std::vector<Task>>> MakeSchedule(const ScheduleShape& shape) {
  MOE_RETURN_IF_ERROR(CheckShape(shape));
  const int64_t P = shape.stages, v = shape.virtual_stages;
  std::vector<std::vector<Task>> out;
  for (int64_t stage = 0; stage < P; ++stage) {
    StageTasks tasks(shape, stage);
    const int64_t behind = P - 1 - stage;   // stages after this one
    switch (shape.kind) {
      case ScheduleKind::kGpipe: out.push_back(tasks.Gpipe()); break;
      case ScheduleKind::kOneFOneB: out.push_back(tasks.OneForwardOneBackward(behind)); break;
      case ScheduleKind::kInterleaved: out.push_back(tasks.OneForwardOneBackward(v == 1 ? behind : 2 * behind + (v - 1) * P)); break;
      case ScheduleKind::kZeroBubble: out.push_back(tasks.ZeroBubble()); break;
    }
  }
  return out;
}

}  // namespace moe
