// The same work on several threads at once, as ranks of one machine do it.
#ifndef MOE_CAPI_COPIES_H_
#define MOE_CAPI_COPIES_H_

#include <cstdint>
#include <thread>
#include <vector>

#include "core/base/status.h"

namespace moe::capi {

// f(0) .. f(n - 1), each on a thread of its own: their values in order, or the first error in that order.
template <typename T, typename F>
absl::StatusOr<std::vector<T>> RunCopies(int64_t n, F f) {
  std::vector<absl::StatusOr<T>> results(n, absl::UnknownError("not run"));
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < n; ++i) threads.emplace_back([&, i] { results[i] = f(i); });
  for (std::thread& t : threads) t.join();
  std::vector<T> values;
  for (absl::StatusOr<T>& r : results) {
    MOE_RETURN_IF_ERROR(r.status());
    values.push_back(*std::move(r));
  }
  return values;
}

}  // namespace moe::capi
#endif  // MOE_CAPI_COPIES_H_
