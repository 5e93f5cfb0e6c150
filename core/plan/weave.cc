#include "core/plan/weave.h"

#include "absl/strings/str_join.h"

namespace moe {
namespace {

class Weaver {
 public:
  Weaver(const ScheduleShape& s, const std::vector<std::vector<WeaveStep>>& steps)
      : shape_(s), steps_(steps), stages_(s.stages), message_(2 * s.stages * s.virtual_stages * s.micro_batches) {
    for (int64_t stage = 0; stage < s.stages; ++stage)
      for (size_t i = 0; i < steps[stage].size(); ++i)
        for (const Transfer& t : steps[stage][i].needs) MessageOf(t).needed_at = static_cast<int64_t>(i);
  }

  absl::StatusOr<std::vector<StageProgram>> Run() {
    for (;;) {
      bool moved = false, done = true;
      for (int64_t s = 0; s < shape_.stages; ++s) moved = Walk(s) || moved;
      for (const Stage& s : stages_) done = done && s.done;
      if (done) break;
      if (!moved && !PassBarrier()) MOE_RETURN_IF_ERROR(PostEarlier());
    }
    std::vector<StageProgram> out;
    for (Stage& s : stages_) out.push_back(std::move(s.program));
    return out;
  }

 private:
  struct Message {
    bool sent = false, received = false;   // posted by
    int64_t needed_at = -1;                // step of the receiver
  };
  struct Stage {
    int64_t next = 0;            // step
    bool exchanged = false;      // the exchange before it is over
    bool waits = false, at_barrier = false, done = false;
    Op exchange;                 // when it waits
    StageProgram program;
  };

  Message& MessageOf(const Transfer& t) { return message_[Tag(t, shape_.micro_batches, shape_.stages * shape_.virtual_stages)]; }

  void Post(const Transfer& t, Op* exchange) {
    Message& m = MessageOf(t);
    (t.send ? m.sent : m.received) = true;
    exchange->transfers.push_back(t);
  }

  // As far as the stage gets. True when it has got on.
  bool Walk(int64_t index) {
    Stage& s = stages_[index];
    const std::vector<WeaveStep>& steps = steps_[index];
    const int64_t n = static_cast<int64_t>(steps.size());
    bool moved = false;
    while (!s.done && !s.at_barrier) {
      if (!s.exchanged && !s.waits) {
        s.exchange = Op();
        s.exchange.kind = OpKind::kExchange;
        if (s.next > 0)
          for (const Transfer& t : steps[s.next - 1].gives) Post(t, &s.exchange);
        if (s.next < n)
          for (const Transfer& t : steps[s.next].needs)
            if (!MessageOf(t).received) Post(t, &s.exchange);
        s.waits = true;
        moved = true;
      }
      if (s.waits) {
        for (const Transfer& t : s.exchange.transfers)
          if (const Message& m = MessageOf(t); !m.sent || !m.received) return moved;
        if (!s.exchange.transfers.empty()) s.program.push_back(s.exchange);
        s.waits = false;
        s.exchanged = true;
        moved = true;
      }
      if (s.next == n) {
        s.done = true;
      } else if (steps[s.next].all_stages) {
        s.at_barrier = true;
      } else {
        Step(index);
      }
      moved = true;
    }
    return moved;
  }

  void Step(int64_t index) {
    Stage& s = stages_[index];
    s.program.push_back(steps_[index][s.next++].op);
    s.exchanged = false;
  }

  bool PassBarrier() {
    for (const Stage& s : stages_)
      if (!s.at_barrier) return false;
    for (int64_t i = 0; i < shape_.stages; ++i) {
      stages_[i].at_barrier = false;
      Step(i);
    }
    return true;
  }

  absl::Status PostEarlier() {
    const Transfer* best = nullptr;
    int64_t best_sender = 0, best_distance = 0;
    for (int64_t i = 0; i < shape_.stages; ++i) {
      if (!stages_[i].waits) continue;
      for (const Transfer& t : stages_[i].exchange.transfers) {
        const Message& m = MessageOf(t);
        if (!t.send || m.received || !stages_[t.peer].waits) continue;
        const int64_t distance = m.needed_at - stages_[t.peer].next;
        if (best == nullptr || distance < best_distance) {
          best = &t;
          best_sender = i;
          best_distance = distance;
        }
      }
    }
    if (best == nullptr) {
      std::vector<std::string> where;
      for (int64_t i = 0; i < shape_.stages; ++i)
        where.push_back(absl::StrCat("stage ", i, stages_[i].done ? " is done" : stages_[i].at_barrier ? " is at a collective over the pipeline" : absl::StrCat(" is in ", ToString(stages_[i].exchange))));
      return Internal("the tasks of the schedule wait for each other: ", absl::StrJoin(where, "; "));
    }
    Transfer receive = *best;
    const int64_t receiver = receive.peer;
    receive.send = false;
    receive.peer = best_sender;
    Post(receive, &stages_[receiver].exchange);
    return absl::OkStatus();
  }

  const ScheduleShape& shape_;
  const std::vector<std::vector<WeaveStep>>& steps_;
  std::vector<Stage> stages_;
  std::vector<Message> message_;
};

}  // namespace

absl::StatusOr<std::vector<StageProgram>> Weave(const ScheduleShape& shape, const std::vector<std::vector<WeaveStep>>& steps) { return Weaver(shape, steps).Run(); }

}  // namespace moe
