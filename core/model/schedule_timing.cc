#include "core/model/schedule_timing.h"

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace moe {
namespace {

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// steady_clock is CLOCK_MONOTONIC.
void WaitForClock(double until) {
  timespec t;
  t.tv_sec = static_cast<time_t>(until);
  t.tv_nsec = static_cast<long>((until - static_cast<double>(t.tv_sec)) * 1e9);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr) == EINTR) {}
}

}  // namespace

class EmulatedStage::TimedChunk : public StageChunk {
 public:
  TimedChunk(const Chunk& place, const StageTimes& times, Emulation emulation, StageTiming* timing) : place_(place), times_(times), emulation_(emulation), timing_(timing) {}

  const Chunk& place() const override { return place_; }
  DType dtype() const override { return DType::kF32; }
  int64_t d_model() const override { return 1; }

  absl::Status Forward(const ModuleContext& ctx, RotaryCache*, bool, ChunkPass* pass, RoutingSums*) override {
    Take(times_.forward);
    MOE_ASSIGN_OR_RETURN(pass->y_TD, ctx.arena->Make(dtype(), {pass->layout.share_rows(), d_model()}));
    return ctx.device->Fill(pass->y_TD, 1);
  }
  absl::StatusOr<double> Loss(const ModuleContext&, bool, double, ChunkPass* pass) override {
    pass->dy_TD = pass->y_TD;
    return 0.0;
  }
  absl::Status Logits(const ModuleContext&, const ChunkPass&, const std::vector<int32_t>&, TensorView*) override { return Internal("a chunk that only takes time has no logits"); }
  absl::Status Backward(const ModuleContext&, bool split, In, double, ChunkPass* pass) override {
    Take(split ? times_.backward - times_.backward_weight : times_.backward);
    pass->dx_TD = pass->dy_TD;
    if (split) {
      pass->weight_grads.push_back([this] {
        Take(times_.backward_weight);
        return absl::OkStatus();
      });
    }
    return absl::OkStatus();
  }

 private:
  void Take(double seconds) {
    const double begin = Now(), until = begin + seconds;
    if (emulation_ == Emulation::kTimedWait) WaitForClock(until);
    double end = Now();
    while (end < until) end = Now();
    timing_->first = std::min(timing_->first, begin);
    timing_->last = std::max(timing_->last, end);
    timing_->busy += end - begin;
  }

  Chunk place_;
  StageTimes times_;
  Emulation emulation_;
  StageTiming* timing_;
};

EmulatedStage::~EmulatedStage() = default;

absl::StatusOr<std::unique_ptr<EmulatedStage>> EmulatedStage::Make(const ScheduleShape& shape, const StageTimes& times, Emulation emulation, Device* device, Communicator* pp) {
  MOE_ASSIGN_OR_RETURN(std::vector<StageProgram> programs, MakeStepProgram({shape, false, false}));
  std::unique_ptr<EmulatedStage> s(new EmulatedStage);
  // Batch, gradients and the update are not part of a schedule.
  for (Op& op : programs[pp->rank()])
    if (op.kind == OpKind::kForward || op.kind == OpKind::kBackward || op.kind == OpKind::kBackwardInput || op.kind == OpKind::kBackwardWeight || op.kind == OpKind::kExchange) s->program_.push_back(std::move(op));
  s->ranks_.Set(GroupKind::kPp, pp);
  const int64_t v = shape.virtual_stages, all = shape.stages * v;
  const double part = 1.0 / static_cast<double>(v);
  for (int64_t i = pp->rank(); i < all; i += shape.stages)
    s->chunks_.push_back(std::make_unique<TimedChunk>(Chunk{pp->rank(), i, 1, i == 0, i == all - 1}, StageTimes{times.forward * part, times.backward * part, times.backward_weight * part}, emulation, &s->timing_));
  s->work_.backward = true;
  for (int64_t m = 0; m < shape.micro_batches; ++m) s->work_.micro.push_back({s->id_.data(), nullptr, 1, 1, m});
  s->runner_ = std::make_unique<StageRunner>(device, s->ranks_, &s->chunks_, all, nullptr);
  return s;
}

absl::StatusOr<StageTiming> EmulatedStage::Step() {
  // The kernel may otherwise end a wait 50 microseconds late.
  ::prctl(PR_SET_TIMERSLACK, 1);
  MOE_RETURN_IF_ERROR(runner_->Start());
  if (Communicator* pp = ranks_.group(GroupKind::kPp)) {
    std::vector<char> all(pp->size());
    const char here = 0;
    MOE_RETURN_IF_ERROR(AllGather(pp, &here, 1, all.data()));
  }
  timing_ = {1e300, 0, 0};
  for (const Op& op : program_) MOE_RETURN_IF_ERROR(runner_->Run(op, &work_));
  MOE_RETURN_IF_ERROR(runner_->Finish());
  return timing_;
}

}  // namespace moe
