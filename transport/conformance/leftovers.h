// A rank that is killed in the moment in which UCX makes its worker leaves a file of some megabytes in /dev/shm. The suite does not.
#ifndef MOE_TRANSPORT_CONFORMANCE_LEFTOVERS_H_
#define MOE_TRANSPORT_CONFORMANCE_LEFTOVERS_H_

#include <set>
#include <string>

namespace moe::conformance {

// Removes, at its end, what UCX has left in /dev/shm since its beginning and no process has mapped.
class Leftovers {
 public:
  Leftovers();
  ~Leftovers();

 private:
  std::set<std::string> before_;
};

}  // namespace moe::conformance
#endif  // MOE_TRANSPORT_CONFORMANCE_LEFTOVERS_H_
