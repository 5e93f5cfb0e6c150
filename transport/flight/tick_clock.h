// CLOCK_MONOTONIC for a few nanoseconds: the processor's counter, tied to the clock again and again. (clock_gettime takes 25 to 40 ns on
// the machines that this was measured on, and an operation is stamped twice.)
#ifndef MOE_TRANSPORT_FLIGHT_TICK_CLOCK_H_
#define MOE_TRANSPORT_FLIGHT_TICK_CLOCK_H_

#include <time.h>

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace moe {

// One thread at a time.
class TickClock {
 public:
  TickClock() : counts_(HasSteadyCounter()), first_{Ticks(), Monotonic()}, anchor_(first_) {}

  // Nanoseconds of CLOCK_MONOTONIC, to some microseconds; a call may be a few nanoseconds before the last one.
  int64_t Now() {
    if (!counts_) return Monotonic();
    const uint64_t ticks = Ticks() - anchor_.ticks;
    // 1 << 28 ticks are about a tenth of a second.
    if (nanoseconds_per_tick_ == 0 || ticks > uint64_t{1} << 28) return Tie();
    return anchor_.nanoseconds + static_cast<int64_t>(static_cast<double>(ticks) * nanoseconds_per_tick_);
  }

  static int64_t Monotonic() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
  }

 private:
  struct Pair { uint64_t ticks; int64_t nanoseconds; };
  static constexpr int64_t kBaseline = 5'000'000;   // ns, before the rate is trusted

  // The rate over all the time since the start, from here on.
  int64_t Tie() {
    anchor_ = {Ticks(), Monotonic()};
    const int64_t passed = anchor_.nanoseconds - first_.nanoseconds;
    if (passed > kBaseline) nanoseconds_per_tick_ = static_cast<double>(passed) / static_cast<double>(anchor_.ticks - first_.ticks);
    return anchor_.nanoseconds;
  }

#if defined(__x86_64__)
  static uint64_t Ticks() { return __rdtsc(); }
  // "Invariant TSC": the same rate whatever the core's clock does (leaf 0x80000007, EDX bit 8).
  static bool HasSteadyCounter() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0;
  }
#else
  static uint64_t Ticks() { return 0; }
  static bool HasSteadyCounter() { return false; }
#endif

  const bool counts_;
  const Pair first_;
  Pair anchor_;
  double nanoseconds_per_tick_ = 0;
};

}  // namespace moe
#endif  // MOE_TRANSPORT_FLIGHT_TICK_CLOCK_H_
