// `moe plan`: everything that can be said about a layout without starting a rank. Who is in which group, which experts,
// parameters and bytes each rank holds, in which order stages compute, what moves over which axis, how long a step may take, and
// whether anyone would wait for ever.
//
// All of it is worked out per pipeline stage (the ranks of a stage do the same), so 100,000 ranks cost no more than a hundred.
#ifndef MOE_CORE_PLAN_REPORT_PLAN_REPORT_H_
#define MOE_CORE_PLAN_REPORT_PLAN_REPORT_H_

#include <memory>
#include <string>
#include <vector>

#include "core/plan/check.h"
#include "core/plan/report/memory.h"
#include "core/plan/report/ranks_text.h"
#include "core/plan/report/simulate.h"

namespace moe {

struct PlanOptions {
  Machine machine;
  double imbalance = 1;         // routes to the busiest rank of an expert-parallel group over the mean; the others wait for it
  std::string seeded_mistake;   // "" or a name of check.h: the check must find it
};

struct StagePlan {
  std::vector<Chunk> chunks;
  ParameterCounts parameters;   // of the rank that holds most
  RankMemory memory;
  double compute = 0, communication = 0, idle = 0;   // seconds of a step
};

// What a rank of the busiest stage and all ranks together send in a step.
struct AxisTraffic {
  GroupKind group;
  double rank_bytes = 0, total_bytes = 0, rank_seconds = 0;
};

struct PlanReport {
  config::Config config;
  std::shared_ptr<const Mesh> mesh;
  ModelParameters model;
  std::vector<GroupSummary> groups;
  int64_t experts_per_rank = 0;
  std::vector<StagePlan> stages;
  ScheduleShape schedule;
  MicroShape micro;
  bool routed_first = false;            // all micro-batches are routed once before the first forward that is kept
  std::vector<StageProgram> programs;
  Timeline timeline;
  double ideal_bubble = 0;
  std::vector<AxisTraffic> traffic;     // of the axes that move anything
  Machine machine;
  double imbalance = 1;                 // of the routing that the times are for
  std::vector<std::string> warnings;
  std::string seeded_mistake;
  Verdict verdict;
};

// INVALID_ARGUMENT naming field, value and remedy: a layout that ValidateLayout refuses, a step of too many operations to draw
// up, a mistake that is unknown or cannot exist in this layout. A deadlock is no error but the report's verdict.
absl::StatusOr<PlanReport> MakePlanReport(const config::Config& c, const PlanOptions& options);

std::string PlanText(const PlanReport& r);
std::string PlanJson(const PlanReport& r);
std::string PlanSvg(const PlanReport& r);

}  // namespace moe
#endif  // MOE_CORE_PLAN_REPORT_PLAN_REPORT_H_
