// How UCX really reaches a peer, read from what it prints of an endpoint: it drops a fast lane without a word when a setting does not
// fit (0.2 us become 60-100 us), so it is looked at on every start.
#ifndef MOE_TRANSPORT_UCX_LANES_H_
#define MOE_TRANSPORT_UCX_LANES_H_

#include <string>

namespace moe {

struct Lanes {
  std::string text;            // "posix+cma (shared memory)", "tcp eth0"
  bool shared_memory = false;
};
// `info`: the output of ucp_ep_print_info.
Lanes ParseLanes(const std::string& info);

}  // namespace moe
#endif  // MOE_TRANSPORT_UCX_LANES_H_
