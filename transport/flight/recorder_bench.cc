// Nanoseconds that recording takes from an operation: posting and ending it, the clock included.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "transport/flight/recorder.h"

int main(int argc, char** argv) {
  const auto r = moe::FlightRecorder::Make(argc > 1 ? argv[1] : "", 0, 1, 0, moe::LogSink());
  constexpr int64_t kOps = 200000;
  std::vector<double> each;
  for (int round = 0; round < 21; ++round) {
    const int64_t begin = moe::TickClock::Monotonic();
    for (int64_t i = 0; i < kOps; ++i) {
      moe::flight::Record record;
      record.group = 1;
      record.sequence = i;
      r->Post(&record);
      r->Done(&record, record.posted, true);
    }
    each.push_back(static_cast<double>(moe::TickClock::Monotonic() - begin) / kOps);
  }
  std::sort(each.begin(), each.end());
  std::printf("recording an operation: %.1f ns, median of %zu rounds (%.1f to %.1f)\n", each[each.size() / 2], each.size(), each.front(), each.back());
  return 0;
}
