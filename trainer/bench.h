// What the benchmarks share: medians, JSON lines and tables, running a peer's script in turn.
#ifndef MOE_TRAINER_BENCH_H_
#define MOE_TRAINER_BENCH_H_

#include <string>
#include <vector>

#include "trainer/arguments.h"

namespace moe::trainer {

struct Spread { double median = 0, low = 0, high = 0; };
Spread SpreadOf(std::vector<double> values);

int64_t IntFlag(const Arguments& a, const std::string& flag, int64_t otherwise);

// Runs a command and gives the JSON objects that it prints, one per line. FAILURE with its last words when it fails.
Result RunForJson(const std::vector<std::string>& command, std::vector<Json>* lines);

// The interpreter of the peers' scripts: --peer-python, or python3; MISUSE when it cannot import `modules`.
Result PeerPython(const Arguments& a, const std::string& modules, std::string* python);
// tests/peers/NAME under the source tree that the start script names with --root.
Result PeerScript(const Arguments& a, const std::string& name, std::string* path);
// This program.
std::string Self();

}  // namespace moe::trainer
#endif  // MOE_TRAINER_BENCH_H_
