#include "capi/boundary.h"
#include "transport/flight/report.h"

using moe::capi::Catch;
using moe::capi::NullArgument;
using moe::capi::ToString;

namespace {

template <typename F>
moe_status* Read(const char* dir, const char* name, char** out, F f) {
  return Catch([&]() -> absl::Status {
    if (dir == nullptr) return NullArgument("flight_dir");
    if (out == nullptr) return NullArgument(name);
    MOE_ASSIGN_OR_RETURN(const std::vector<moe::flight::RankFlight> ranks, moe::flight::ReadFlights(dir));
    *out = ToString(f(ranks));
    return absl::OkStatus();
  });
}

}  // namespace

extern "C" {

moe_status* moe_flight_report(const char* flight_dir, char** text) { return Read(flight_dir, "text", text, moe::flight::Report); }
moe_status* moe_flight_trace(const char* flight_dir, char** json) { return Read(flight_dir, "json", json, moe::flight::Trace); }

}  // extern "C"
