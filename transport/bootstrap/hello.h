// What a rank says of itself when it comes, and the judgement of rank 0.
#ifndef MOE_TRANSPORT_BOOTSTRAP_HELLO_H_
#define MOE_TRANSPORT_BOOTSTRAP_HELLO_H_

#include <cstdint>
#include <string>

#include "core/base/status.h"
#include "transport/bootstrap/rendezvous.h"

namespace moe {

struct Hello {
  static constexpr int64_t kMaxBytes = 2048;
  int64_t protocol = 1;
  int64_t rank = 0, world_size = 1, epoch = 0;
  std::string job_id, data_plane, build_version;
};

Hello MakeHello(const RendezvousOptions& options, const std::string& data_plane);
std::string Encode(const Hello& hello);
bool Decode(const std::string& bytes, Hello* hello);

enum class HelloVerdict {
  kWelcome,
  kStranger,   // of another job or a second of the same rank: refused, the job goes on
  kMismatch,   // of this job, but cannot work with it: the job fails on all ranks
};
// `here`: rank 0's own; `taken`: somebody with that rank is here already.
HelloVerdict Judge(const Hello& here, const Hello& there, bool taken, absl::Status* reason);

// A status on its way in a kRefuse frame.
std::string EncodeStatus(const absl::Status& status);
absl::Status DecodeStatus(const std::string& bytes);

}  // namespace moe
#endif  // MOE_TRANSPORT_BOOTSTRAP_HELLO_H_
