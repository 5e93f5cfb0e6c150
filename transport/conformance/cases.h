// The cases of the suite. Each runs on every rank and returns what went wrong.
#ifndef MOE_TRANSPORT_CONFORMANCE_CASES_H_
#define MOE_TRANSPORT_CONFORMANCE_CASES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/comm/communicator.h"
#include "transport/conformance/job.h"

namespace moe::conformance {

// Data: on a running transport, all cases in one job. `id`: the first of 100 group ids that the case may use.
using DataCase = absl::Status (*)(Transport* t, int64_t id);
struct NamedDataCase { const char* name; DataCase run; };
std::vector<NamedDataCase> AllToAllCases();
std::vector<NamedDataCase> CollectiveCases();
std::vector<NamedDataCase> OrderCases();

struct NamedCase { const char* name; Case run; };
std::vector<NamedCase> LifeCases();
std::vector<NamedCase> FailureCases();
std::vector<NamedCase> DisagreementCases();

// Helpers.
std::vector<int64_t> AllRanks(Transport* t);
// Byte number i of a stream that depends on `key`: every block's contents are told apart.
uint8_t PatternByte(uint64_t key, int64_t i);
void FillPattern(uint64_t key, void* data, int64_t bytes);
// -1, or the first byte that is wrong.
int64_t FindWrongByte(uint64_t key, const void* data, int64_t bytes);
// Error unless `status` has this code and its message contains every one of `words`.
absl::Status ExpectError(const absl::Status& status, absl::StatusCode code, const std::vector<std::string>& words);

}  // namespace moe::conformance

#define MOE_CHECK_THAT(condition, ...)                                                                              \
  do {                                                                                                              \
    if (!(condition)) return ::moe::Internal(__FILE__, ":", __LINE__, ": ", #condition, " ", ##__VA_ARGS__);        \
  } while (0)

#endif  // MOE_TRANSPORT_CONFORMANCE_CASES_H_
