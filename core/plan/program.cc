#include "core/plan/program.h"

#include "absl/strings/str_join.h"
#include "core/plan/weave.h"

namespace moe {
namespace {

Op Simple(OpKind kind) {
  Op op;
  op.kind = kind;
  return op;
}

OpKind OpOf(TaskKind kind) {
  switch (kind) {
    case TaskKind::kForward: return OpKind::kForward;
    case TaskKind::kBackward: return OpKind::kBackward;
    case TaskKind::kBackwardInput: return OpKind::kBackwardInput;
    case TaskKind::kBackwardWeight: return OpKind::kBackwardWeight;
  }
  return OpKind::kForward;
}

// A computing op and the messages that it needs and makes.
WeaveStep StepOf(const ScheduleShape& s, OpKind kind, int64_t chunk, int64_t micro) {
  WeaveStep step;
  step.op.kind = kind;
  step.op.chunk = chunk;
  step.op.micro = micro;
  const int64_t last = s.stages * s.virtual_stages - 1;
  if (s.stages == 1 || kind == OpKind::kBackwardWeight) return step;   // neighbouring virtual stages are on the same stage
  const auto transfer = [&](bool send, bool gradient, int64_t boundary, int64_t other) {
    return Transfer{send, gradient, boundary, micro, other % s.stages};
  };
  const bool up = kind == OpKind::kForward || kind == OpKind::kRoute;
  if (chunk > 0) (up ? step.needs : step.gives).push_back(transfer(!up, !up, chunk - 1, chunk - 1));
  if (chunk < last) (up ? step.gives : step.needs).push_back(transfer(up, !up, chunk, chunk + 1));
  return step;
}

// Forward of all micro-batches: rounds of P, chunk by chunk (gpipe's order).
std::vector<std::vector<WeaveStep>> ForwardSteps(const ScheduleShape& s, OpKind kind, const std::vector<std::vector<Task>>& gpipe) {
  std::vector<std::vector<WeaveStep>> steps(s.stages);
  for (int64_t stage = 0; stage < s.stages; ++stage)
    for (const Task& t : gpipe[stage])
      if (t.kind == TaskKind::kForward) steps[stage].push_back(StepOf(s, kind, t.chunk, t.micro));
  return steps;
}

absl::StatusOr<std::vector<StageProgram>> WeaveForward(ScheduleShape s, OpKind kind) {
  s.kind = ScheduleKind::kGpipe;   // takes any number of micro-batches
  MOE_ASSIGN_OR_RETURN(const auto tasks, MakeSchedule(s));
  return Weave(s, ForwardSteps(s, kind, tasks));
}

// The number of forwards of a stage when all of them come before its backwards, else -1.
int64_t ForwardsFirst(const std::vector<Task>& tasks) {
  int64_t n = 0;
  while (n < static_cast<int64_t>(tasks.size()) && tasks[n].kind == TaskKind::kForward) ++n;
  for (size_t i = n; i < tasks.size(); ++i)
    if (tasks[i].kind == TaskKind::kForward) return -1;
  return n;
}

}  // namespace

const char* Name(OpKind kind) {
  constexpr const char* names[] = {"begin",          "route",        "forward",           "backward",      "backward of inputs", "backward of weights", "exchange",   "routing sums",
                                   "dense gradients", "replicated gradients", "expert gradients", "tied gradients", "metrics",            "norm",               "update"};
  return names[static_cast<int>(kind)];
}

uint32_t Tag(const Transfer& t, int64_t micro_batches, int64_t virtual_stages_in_all) {
  (void)virtual_stages_in_all;   // the boundary is the slowest digit
  return static_cast<uint32_t>((t.boundary * micro_batches + t.micro) * 2 + (t.gradient ? 1 : 0));
}

absl::StatusOr<std::vector<StageProgram>> MakeStepProgram(const StepShape& shape) {
  const ScheduleShape& s = shape.schedule;
  MOE_ASSIGN_OR_RETURN(const auto tasks, MakeSchedule(s));
  // Sums of routing come where every stage has done its forwards and none a backward, if there is such a point. Else all
  // micro-batches are routed beforehand.
  bool between = true;
  for (const auto& t : tasks) between = between && ForwardsFirst(t) >= 0;
  const bool prepass = shape.needs_routing_sums && !between;

  std::vector<StageProgram> programs(s.stages, StageProgram{Simple(OpKind::kBegin)});
  const auto append = [&](const std::vector<StageProgram>& part) {
    for (int64_t stage = 0; stage < s.stages; ++stage) programs[stage].insert(programs[stage].end(), part[stage].begin(), part[stage].end());
  };
  const auto all = [&](OpKind kind) {
    for (StageProgram& p : programs) p.push_back(Simple(kind));
  };
  if (prepass) {
    MOE_ASSIGN_OR_RETURN(const auto routes, WeaveForward(s, OpKind::kRoute));
    append(routes);
    all(OpKind::kReduceRouting);
  }
  std::vector<std::vector<WeaveStep>> steps(s.stages);
  for (int64_t stage = 0; stage < s.stages; ++stage) {
    for (const Task& t : tasks[stage]) steps[stage].push_back(StepOf(s, OpOf(t.kind), t.chunk, t.micro));
    if (shape.needs_routing_sums && between) {
      WeaveStep sums;
      sums.op = Simple(OpKind::kReduceRouting);
      sums.all_stages = true;
      steps[stage].insert(steps[stage].begin() + ForwardsFirst(tasks[stage]), sums);
    }
  }
  MOE_ASSIGN_OR_RETURN(const auto compute, Weave(s, steps));
  append(compute);
  if (!shape.needs_routing_sums) all(OpKind::kReduceRouting);
  for (OpKind kind : {OpKind::kReduceDense, OpKind::kReduceReplicated, OpKind::kReduceExpert}) all(kind);
  if (shape.tied_embeddings && s.stages > 1) all(OpKind::kReduceTied);
  for (OpKind kind : {OpKind::kReduceMetrics, OpKind::kReduceNorm, OpKind::kUpdate}) all(kind);
  return programs;
}

absl::StatusOr<std::vector<StageProgram>> MakeForwardProgram(const ScheduleShape& shape) { return WeaveForward(shape, OpKind::kForward); }

std::string ToString(const Op& op) {
  const auto computing = [&](const char* letter) { return absl::StrCat(letter, op.micro, op.chunk > 0 ? absl::StrCat(".", op.chunk) : ""); };
  switch (op.kind) {
    case OpKind::kRoute: return computing("R");
    case OpKind::kForward: return computing("F");
    case OpKind::kBackward: return computing("B");
    case OpKind::kBackwardInput: return computing("I");
    case OpKind::kBackwardWeight: return computing("W");
    case OpKind::kExchange:
      return absl::StrCat("exchange {", absl::StrJoin(op.transfers, ", ", [](std::string* out, const Transfer& t) { absl::StrAppend(out, ToString(t)); }), "}");
    default: return Name(op.kind);
  }
}

std::string ToString(const Transfer& t) {
  return absl::StrCat(t.send ? "send " : "receive ", t.gradient ? "gradient " : "activation ", t.micro, t.send ? " to stage " : " from stage ", t.peer);
}

}  // namespace moe
