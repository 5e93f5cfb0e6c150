#include <algorithm>
#include <memory>
#include <vector>

#include "capi/boundary.h"
#include "capi/copies.h"
#include "capi/cores.h"
#include "core/device/device.h"
#include "core/model/schedule_timing.h"
#include "core/plan/report/simulate.h"
#include "transport/inproc/inproc.h"

using moe::capi::Catch;
using moe::capi::NullArgument;
using moe::capi::ReadStruct;

namespace {

using Timings = std::vector<moe::StageTiming>;   // by step

absl::Status CheckOptions(const moe_schedule_options& o) {
  if (o.kind == nullptr) return NullArgument("options.kind");
  const std::pair<const char*, int64_t> counts[] = {{"stages", o.stages}, {"micro_batches", o.micro_batches}, {"steps", o.steps}};
  for (const auto& [name, value] : counts)
    if (value < 1 || value > 4096) return moe::InvalidArgument("options.", name, " is ", value, ", must be from 1 to 4096");
  if (o.stages > 64) return moe::InvalidArgument("options.stages is ", o.stages, ", must be at most 64: each is a thread");
  if (o.virtual_stages < 0 || o.virtual_stages > 64) return moe::InvalidArgument("options.virtual_stages is ", o.virtual_stages, ", must be from 1 to 64, or 0 for the usual");
  const std::pair<const char*, double> times[] = {{"forward_ms", o.forward_ms}, {"backward_ms", o.backward_ms}, {"backward_weight_ms", o.backward_weight_ms}};
  for (const auto& [name, value] : times)
    if (!(value >= 0 && value <= 1e4)) return moe::InvalidArgument("options.", name, " is ", value, ", must be from 0 to 10000");
  if (!(o.forward_ms > 0)) return moe::InvalidArgument("options.forward_ms is 0, must be above 0");
  if (o.backward_weight_ms > o.backward_ms) return moe::InvalidArgument("options.backward_weight_ms is ", o.backward_weight_ms, ", must be at most backward_ms, which is ", o.backward_ms, ": it is a part of it");
  return absl::OkStatus();
}

// One stage: a step that is not counted, then the others.
absl::StatusOr<Timings> RunStage(const moe::ScheduleShape& shape, const moe::StageTimes& times, moe::Emulation emulation, int64_t steps, std::shared_ptr<moe::InprocWorld> world, int64_t rank) {
  MOE_ASSIGN_OR_RETURN(const auto transport, moe::MakeInprocTransport(std::move(world), rank));
  std::vector<int64_t> all(shape.stages);
  for (int64_t i = 0; i < shape.stages; ++i) all[i] = i;
  MOE_ASSIGN_OR_RETURN(const auto pp, transport->CreateGroup(1, all));
  MOE_ASSIGN_OR_RETURN(const auto device, moe::MakeCpuDevice(1));
  MOE_ASSIGN_OR_RETURN(const auto stage, moe::EmulatedStage::Make(shape, times, emulation, device.get(), pp.get()));
  Timings out;
  for (int64_t i = 0; i <= steps; ++i) {
    MOE_ASSIGN_OR_RETURN(const moe::StageTiming t, stage->Step());
    if (i > 0) out.push_back(t);
  }
  MOE_RETURN_IF_ERROR(transport->Shutdown());
  return out;
}

absl::Status Measure(const moe_schedule_options& o, moe_schedule_timing* out) {
  MOE_RETURN_IF_ERROR(CheckOptions(o));
  moe::ScheduleShape shape;
  MOE_ASSIGN_OR_RETURN(shape.kind, moe::ParseScheduleKind(o.kind));
  shape.stages = o.stages;
  shape.micro_batches = o.micro_batches;
  moe::config::Config c;
  c.mutable_pipeline()->set_kind(o.kind);
  c.mutable_pipeline()->set_virtual_stages(o.virtual_stages);
  shape.virtual_stages = moe::VirtualStages(c, o.stages);
  MOE_RETURN_IF_ERROR(moe::MakeSchedule(shape).status());   // before any thread waits for another
  const moe::StageTimes times{o.forward_ms * 1e-3, o.backward_ms * 1e-3, o.backward_weight_ms * 1e-3};
  const bool spin = o.stages <= moe::capi::UsableCores();
  const auto world = std::make_shared<moe::InprocWorld>(o.stages);
  const auto run = [&](int64_t stage) { return RunStage(shape, times, spin ? moe::Emulation::kBusyLoop : moe::Emulation::kTimedWait, o.steps, world, stage); };
  MOE_ASSIGN_OR_RETURN(const std::vector<Timings> stages, moe::capi::RunCopies<Timings>(o.stages, run));
  std::vector<double> bubbles, spans;
  for (int64_t step = 0; step < o.steps; ++step) {
    double first = 1e300, last = 0, busy = 0;
    for (const Timings& s : stages) {
      first = std::min(first, s[step].first);
      last = std::max(last, s[step].last);
      busy += s[step].busy;
    }
    spans.push_back(last - first);
    bubbles.push_back(1 - busy / (static_cast<double>(o.stages) * (last - first)));
  }
  std::sort(bubbles.begin(), bubbles.end());
  std::sort(spans.begin(), spans.end());
  out->formula = moe::IdealBubble(shape, o.forward_ms, o.backward_ms, o.backward_weight_ms);
  out->bubble = bubbles[bubbles.size() / 2];
  out->bubble_low = bubbles.front();
  out->bubble_high = bubbles.back();
  out->step_seconds = spans[spans.size() / 2];
  out->busy_loop = spin ? 1 : 0;
  return absl::OkStatus();
}

}  // namespace

extern "C" moe_status* moe_measure_schedule(const moe_schedule_options* options, moe_schedule_timing* timing) {
  return Catch([&]() -> absl::Status {
    MOE_ASSIGN_OR_RETURN(const moe_schedule_options o, ReadStruct("options", options));
    MOE_RETURN_IF_ERROR(ReadStruct("timing", timing).status());
    moe_schedule_timing t{};
    MOE_RETURN_IF_ERROR(Measure(o, &t));
    moe::capi::WriteStruct(t, timing);
    return absl::OkStatus();
  });
}
