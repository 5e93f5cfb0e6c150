// Frames over a TCP connection that never blocks: header (magic, type, length), payload. Memory is bounded on both sides: a
// longer frame than is expected is an error before it is read, and a peer that does not read is given up.
#ifndef MOE_TRANSPORT_BOOTSTRAP_FRAME_SOCKET_H_
#define MOE_TRANSPORT_BOOTSTRAP_FRAME_SOCKET_H_

#include <cstdint>
#include <string>

#include "core/base/status.h"

namespace moe {

enum class FrameType : uint32_t {
  kHello = 1,     // peer: who I am
  kWelcome = 2,   // rank 0: you are in; wait so long
  kRefuse = 3,    // rank 0: you are not, and why
  kReady = 4,     // rank 0: all are in
  kNotice = 5,    // transport/notice.h
  kHeartbeat = 6,
  kGather = 7,    // peer: my part of an all-gather
  kGathered = 8,  // rank 0: all parts
  kBye = 9,       // peer: my operations are done
  kAllLeft = 10,  // rank 0: everybody's are
  kAskLeft = 11,  // peer: who has not said bye?
  kNotLeft = 12,  // rank 0: these
  kLast = 12,
};

struct Frame {
  FrameType type = FrameType::kHeartbeat;
  std::string payload;
};

class FrameSocket {
 public:
  explicit FrameSocket(int fd);  // takes it; makes it non-blocking
  ~FrameSocket();
  FrameSocket(const FrameSocket&) = delete;
  FrameSocket& operator=(const FrameSocket&) = delete;

  int fd() const { return fd_; }
  void set_max_payload(int64_t bytes) { max_payload_ = bytes; }

  // Reads what has come. UNAVAILABLE: the other side has closed ("connection closed") or the connection broke; DATA_LOSS: not our
  // frames. Frames that came before are still handed out by Next.
  absl::Status Read();
  // True when a whole frame has come.
  bool Next(Frame* frame);
  // Queues and writes what goes. UNAVAILABLE as above, also when the peer has stopped reading.
  absl::Status Write(FrameType type, const std::string& payload);
  absl::Status Flush();
  bool unsent() const { return sent_ < out_.size(); }
  // No more frames from this side; the other side reads to the end.
  void EndWriting();

 private:
  int fd_;
  int64_t max_payload_;
  std::string in_, out_;
  size_t taken_ = 0, sent_ = 0;
};

}  // namespace moe
#endif  // MOE_TRANSPORT_BOOTSTRAP_FRAME_SOCKET_H_
