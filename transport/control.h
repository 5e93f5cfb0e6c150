// The way of news beside the data: failures, long waits, goodbyes. For processes it is the TCP connection that the
// rendezvous leaves open; for threads of one process, memory. UCX alone notices a death over shared memory late or never.
#ifndef MOE_TRANSPORT_CONTROL_H_
#define MOE_TRANSPORT_CONTROL_H_

#include <cstdint>
#include <vector>

#include "transport/notice.h"

namespace moe {

class Control {
 public:
  virtual ~Control() = default;
  // News for this rank. Death of a rank arrives as kFailAll, everybody's goodbye as kAllLeft.
  NoticeInbox* inbox() { return &inbox_; }

  // To all other ranks, best effort. Any thread; does not block.
  virtual void Tell(const Notice& notice) = 0;
  // This rank's goodbye: all its operations are done.
  virtual void Leave() = 0;
  // Ranks that have not said goodbye, as far as can be found out in half a second. For error messages.
  virtual std::vector<int64_t> NotLeft() = 0;
  // The end: `in_order` when everybody has said goodbye; otherwise the other ranks learn that this one is gone.
  // Returns within a second or two. After it nothing comes to the inbox.
  virtual void Close(bool in_order) = 0;

 private:
  NoticeInbox inbox_;
};

// A world of one: nobody to talk to.
class NoControl : public Control {
 public:
  void Tell(const Notice&) override {}
  void Leave() override { Notice n; n.kind = Notice::Kind::kAllLeft; inbox()->Push(n); }
  std::vector<int64_t> NotLeft() override { return {}; }
  void Close(bool) override {}
};

}  // namespace moe
#endif  // MOE_TRANSPORT_CONTROL_H_
