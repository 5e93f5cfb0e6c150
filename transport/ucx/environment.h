// Environment variables for the length of one call into UCX, which reads some settings from nowhere else. What the user has set wins;
// ours are taken back, so that child processes see the user's environment.
#ifndef MOE_TRANSPORT_UCX_ENVIRONMENT_H_
#define MOE_TRANSPORT_UCX_ENVIRONMENT_H_

#include <stdlib.h>

#include <string>
#include <utility>
#include <vector>

namespace moe {

class ScopedEnvironment {
 public:
  explicit ScopedEnvironment(const std::vector<std::pair<std::string, std::string>>& variables) {
    for (const auto& [name, value] : variables) {
      if (getenv(name.c_str()) != nullptr) continue;
      setenv(name.c_str(), value.c_str(), 1);
      ours_.push_back(name);
    }
  }
  ~ScopedEnvironment() {
    for (const std::string& name : ours_) unsetenv(name.c_str());
  }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  std::vector<std::string> ours_;
};

}  // namespace moe
#endif  // MOE_TRANSPORT_UCX_ENVIRONMENT_H_
