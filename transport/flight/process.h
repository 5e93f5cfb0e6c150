// What /proc says of a process of this machine.
#ifndef MOE_TRANSPORT_FLIGHT_PROCESS_H_
#define MOE_TRANSPORT_FLIGHT_PROCESS_H_

#include <cstdint>
#include <string>

namespace moe {

// Field `starttime` of /proc/PID/stat, and its state letter (R, S, D, T, Z ...); 0 and ' ' when there is no such process.
struct ProcessStat { int64_t start_ticks = 0; char state = ' '; };
ProcessStat StatOf(int64_t pid);
inline int64_t StartTicks(int64_t pid) { return StatOf(pid).start_ticks; }

}  // namespace moe
#endif  // MOE_TRANSPORT_FLIGHT_PROCESS_H_
