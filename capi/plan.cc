#include <cmath>

#include "capi/boundary.h"
#include "capi/engine_state.h"
#include "capi/measure.h"
#include "core/config/validate.h"
#include "core/plan/report/plan_report.h"

using moe::capi::Catch;
using moe::capi::NullArgument;
using moe::capi::ReadStruct;
using moe::capi::ToString;

struct moe_plan { moe::PlanReport report; };

namespace {

absl::StatusOr<moe::Machine> MachineOf(const moe::config::Config& c, const moe_plan_options& o) {
  moe::Machine m;
  const struct { const char* name; double given; double* rate; } rates[] = {
      {"gflops", o.gflops, &m.gflops}, {"memory_gbs", o.memory_gbs, &m.memory_gbs}, {"latency_us", o.latency_us, &m.latency_us}, {"bandwidth_gbs", o.bandwidth_gbs, &m.bandwidth_gbs}};
  bool any = false;
  for (const auto& r : rates) {
    if (!std::isfinite(r.given) || r.given < 0) return moe::InvalidArgument("options.", r.name, " is ", r.given, ", must be positive, or 0 for the default");
    any = any || r.given > 0;
  }
  if (o.measure != 0) {
    MOE_ASSIGN_OR_RETURN(m, moe::capi::MeasureMachine(c));
  }
  for (const auto& r : rates)
    if (r.given > 0) *r.rate = r.given;
  if (any) m.source = absl::StrCat(o.measure != 0 ? "measured here and given: " : "given: ", m.gflops, " GFLOP/s, ", m.memory_gbs, " GB/s memory, ", m.bandwidth_gbs, " GB/s and ", m.latency_us, " us network per rank");
  return m;
}

template <typename F>
moe_status* Give(const moe_plan* plan, const char* name, char** text, F f) {
  return Catch([&]() -> absl::Status {
    if (plan == nullptr) return NullArgument("plan");
    if (text == nullptr) return NullArgument(name);
    *text = ToString(f(plan->report));
    return absl::OkStatus();
  });
}

}  // namespace

extern "C" {

moe_status* moe_plan_create(const moe_config* config, const moe_plan_options* options, moe_plan** plan) {
  return Catch([&]() -> absl::Status {
    if (config == nullptr) return NullArgument("config");
    MOE_ASSIGN_OR_RETURN(const moe_plan_options o, ReadStruct("options", options));
    if (plan == nullptr) return NullArgument("plan");
    MOE_RETURN_IF_ERROR(moe::ValidateConfig(config->config, *moe::MakeDefaultRegistry()));
    moe::PlanOptions plan_options;
    MOE_ASSIGN_OR_RETURN(plan_options.machine, MachineOf(config->config, o));
    if (o.imbalance != 0) {
      if (!(o.imbalance >= 1 && std::isfinite(o.imbalance))) return moe::InvalidArgument("options.imbalance is ", o.imbalance, ", must be at least 1, or 0 for even routing");
      plan_options.imbalance = o.imbalance;
    }
    if (o.seeded_mistake != nullptr) plan_options.seeded_mistake = o.seeded_mistake;
    MOE_ASSIGN_OR_RETURN(moe::PlanReport report, moe::MakePlanReport(config->config, plan_options));
    *plan = new moe_plan{std::move(report)};
    return absl::OkStatus();
  });
}

moe_status* moe_plan_is_free(const moe_plan* plan, int32_t* is_free, char** verdict) {
  return Catch([&]() -> absl::Status {
    if (plan == nullptr) return NullArgument("plan");
    if (is_free == nullptr) return NullArgument("is_free");
    if (verdict != nullptr) *verdict = ToString(plan->report.verdict.text);
    *is_free = plan->report.verdict.free ? 1 : 0;
    return absl::OkStatus();
  });
}

moe_status* moe_plan_text(const moe_plan* plan, char** text) { return Give(plan, "text", text, moe::PlanText); }
moe_status* moe_plan_json(const moe_plan* plan, char** json) { return Give(plan, "json", json, moe::PlanJson); }
moe_status* moe_plan_svg(const moe_plan* plan, char** svg) { return Give(plan, "svg", svg, moe::PlanSvg); }

void moe_plan_destroy(moe_plan* plan) { delete plan; }

}  // extern "C"
