// What a job's flight recorders say, in words and as a trace.
#ifndef MOE_TRANSPORT_FLIGHT_REPORT_H_
#define MOE_TRANSPORT_FLIGHT_REPORT_H_

#include <string>
#include <vector>

#include "transport/flight/reader.h"

namespace moe::flight {

// How each rank ended or what it is in, who waits for whom in which operation of which layer, and the rank where it began.
std::string Report(const std::vector<RankFlight>& ranks);

// Chrome's trace format (JSON), which Perfetto and chrome://tracing read: a process per rank, a row per group.
std::string Trace(const std::vector<RankFlight>& ranks);

// "all_reduce(count 10, float32, sum), layers.3.moe dispatch"
std::string ToString(const Record& r);

}  // namespace moe::flight
#endif  // MOE_TRANSPORT_FLIGHT_REPORT_H_
