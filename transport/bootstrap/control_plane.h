// The connections of the rendezvous, kept open and served by one small thread per rank: a star around rank 0, which passes
// news on. The end of a connection without goodbye is a death, and so is a silence longer than the heartbeat (a stopped
// process, a cut network). Every rank then has the same UNAVAILABLE status in its inbox within milliseconds.
#ifndef MOE_TRANSPORT_BOOTSTRAP_CONTROL_PLANE_H_
#define MOE_TRANSPORT_BOOTSTRAP_CONTROL_PLANE_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "core/base/log.h"
#include "transport/bootstrap/frame_socket.h"
#include "transport/bootstrap/rendezvous.h"
#include "transport/control.h"

namespace moe {

class ControlPlane final : public Control {
 public:
  // `peers` by rank: on rank 0 all others, elsewhere rank 0.
  ControlPlane(const RendezvousOptions& options, std::vector<std::unique_ptr<FrameSocket>> peers, LogSink log);
  ~ControlPlane() override;

  // Collective, one at a time: the byte strings of all ranks, by rank. For what is needed before data can flow.
  absl::StatusOr<std::vector<std::string>> AllGather(const std::string& mine, absl::Time deadline);

  void Tell(const Notice& notice) override;
  void Leave() override;
  std::vector<int64_t> NotLeft() override;
  void Close(bool in_order) override;

 private:
  struct Outgoing {
    int64_t to, except;  // to < 0: every peer but `except`
    FrameType type;
    std::string payload;
  };
  bool root() const { return options_.rank == 0; }
  void Wake();
  void Send(int64_t to, FrameType type, std::string payload, int64_t except = -1);  // from any thread

  // The thread's.
  void Loop();
  void Handle(int64_t from, Frame frame);
  void HandleNotice(int64_t from, const std::string& payload);
  void Gathered(int64_t rank, std::string part);
  void Bye(int64_t rank);
  void DrainOutgoing();
  void CheckHeartbeats(absl::Time now);
  void Died(int64_t rank, const std::string& how);
  void SetFailure(const absl::Status& status);  // here
  void FinishWriting();

  const RendezvousOptions options_;
  const LogSink log_;
  std::vector<std::unique_ptr<FrameSocket>> peers_;  // the thread's; null: gone
  std::vector<absl::Time> heard_;                    // from them
  int wake_fd_ = -1;

  std::mutex mu_;
  std::condition_variable cv_;
  std::vector<Outgoing> outgoing_;
  absl::Status failure_;                 // the first
  std::vector<std::string> parts_;       // rank 0: of the all-gather
  std::vector<bool> have_;
  std::vector<std::string> gathered_;    // the result, when gathered_ready_
  bool gathered_ready_ = false;
  std::vector<bool> left_;               // rank 0: who has said goodbye
  bool all_left_ = false;
  std::vector<int64_t> not_left_;
  bool have_not_left_ = false;
  bool stop_ = false, in_order_ = false;

  std::thread thread_;
};

}  // namespace moe
#endif  // MOE_TRANSPORT_BOOTSTRAP_CONTROL_PLANE_H_
