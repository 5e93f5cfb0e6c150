#include "core/plan/report/simulate.h"

#include <algorithm>
#include <map>
#include <queue>
#include <tuple>

namespace moe {
namespace {

constexpr double kNever = 1e300;

// Ops at which every stage waits for all.
bool IsShared(OpKind kind) {
  return kind == OpKind::kBegin || kind == OpKind::kReduceRouting || kind == OpKind::kReduceTied || kind == OpKind::kReduceMetrics || kind == OpKind::kReduceNorm;
}

using Message = std::tuple<int64_t, int64_t, bool, bool>;   // boundary, micro-batch, gradient, of the routing pass

// Stages move in virtual time: all that compute have the same speed, so work w that starts at virtual time V ends at V + w whoever
// comes or goes meanwhile.
class Player {
 public:
  Player(const std::vector<StageProgram>& programs, const std::function<double(int64_t, const Op&)>& seconds, double transfer, const Machine& machine, int64_t ranks)
      : programs_(programs), seconds_(seconds), transfer_(transfer), machine_(machine), ranks_(ranks), stages_(programs.size()) {
    for (const StageProgram& p : programs) {
      for (const Op& op : p) stages_[timeline_.stages.size()].routing |= op.kind == OpKind::kRoute;
      timeline_.stages.emplace_back(p.size());
      done_ += p.empty();
    }
  }

  absl::StatusOr<Timeline> Play() {
    for (size_t s = 0; s < stages_.size(); ++s)
      if (!programs_[s].empty()) Begin(static_cast<int64_t>(s));
    while (done_ < static_cast<int64_t>(stages_.size())) {
      const double speed = Speed();
      const double next_work = working_.empty() ? kNever : now_ + (working_.top().first - virtual_) / speed;
      const double next_event = events_.empty() ? kNever : events_.top().first;
      if (next_work >= kNever && next_event >= kNever) return Internal("the simulated step stops: a stage waits for ever");
      const double at = std::min(next_work, next_event);
      virtual_ += (at - now_) * speed;
      now_ = at;
      if (next_work <= next_event) {
        virtual_ = working_.top().first;
        const int64_t s = working_.top().second;
        working_.pop();
        End(s);
      } else {
        const int64_t s = events_.top().second;
        events_.pop();
        End(s);
      }
    }
    timeline_.seconds = now_;
    return std::move(timeline_);
  }

 private:
  struct Stage {
    size_t at = 0;
    int64_t missing = 0;       // messages that have not been sent yet
    double arrived = 0;        // when the last of the others is here
    bool routing = false;      // in the pass that only routes: its messages look like those of the forwards
    std::map<int, int64_t> shared_seen;
  };

  double Speed() const {
    if (machine_.shared_cores == 0 || working_.empty()) return 1;
    return std::min(1.0, static_cast<double>(machine_.shared_cores) / static_cast<double>(static_cast<int64_t>(working_.size()) * ranks_ * machine_.threads));
  }
  void Work(int64_t s, double seconds) { working_.push({virtual_ + seconds, s}); }

  void Begin(int64_t s) {
    Stage& stage = stages_[s];
    const Op& op = programs_[s][stage.at];
    timeline_.stages[s][stage.at].start = now_;
    if (op.kind == OpKind::kReduceRouting) stage.routing = false;
    if (op.kind == OpKind::kExchange) {
      stage.missing = 0;
      stage.arrived = now_;
      for (const Transfer& t : op.transfers) {
        const Message m{t.boundary, t.micro, t.gradient, stage.routing};
        if (t.send) {
          const double arrival = now_ + transfer_;
          const auto waiting = waiting_.find(m);
          if (waiting == waiting_.end()) {
            sent_[m] = arrival;
            continue;
          }
          Stage& peer = stages_[waiting->second];
          peer.arrived = std::max(peer.arrived, arrival);
          if (--peer.missing == 0) events_.push({peer.arrived, waiting->second});
          waiting_.erase(waiting);
        } else if (const auto there = sent_.find(m); there != sent_.end()) {
          stage.arrived = std::max(stage.arrived, there->second);
          sent_.erase(there);
        } else {
          waiting_[m] = s;
          ++stage.missing;
        }
      }
      if (stage.missing == 0) events_.push({stage.arrived, s});
      return;
    }
    if (!IsShared(op.kind) || programs_.size() == 1) return Work(s, seconds_(s, op));
    // The n-th op of this kind waits for everyone's n-th.
    auto& meeting = meetings_[{op.kind, stage.shared_seen[static_cast<int>(op.kind)]++}];
    meeting.push_back(s);
    if (meeting.size() < stages_.size()) return;
    for (int64_t member : meeting) Work(member, seconds_(member, op));
  }

  void End(int64_t s) {
    Stage& stage = stages_[s];
    timeline_.stages[s][stage.at].end = now_;
    if (++stage.at == programs_[s].size()) ++done_;
    else Begin(s);
  }

  const std::vector<StageProgram>& programs_;
  const std::function<double(int64_t, const Op&)>& seconds_;
  const double transfer_;
  const Machine& machine_;
  const int64_t ranks_;
  std::vector<Stage> stages_;
  Timeline timeline_;
  int64_t done_ = 0;
  double now_ = 0, virtual_ = 0;
  using Heap = std::priority_queue<std::pair<double, int64_t>, std::vector<std::pair<double, int64_t>>, std::greater<>>;
  Heap working_;   // by virtual time at the end
  Heap events_;    // by time
  std::map<Message, double> sent_;
  std::map<Message, int64_t> waiting_;
  std::map<std::pair<OpKind, int64_t>, std::vector<int64_t>> meetings_;
};

double Bubble(const std::vector<StageProgram>& programs, const Timeline& t) {
  double first = kNever, last = 0, busy = 0;
  for (size_t s = 0; s < programs.size(); ++s) {
    for (size_t i = 0; i < programs[s].size(); ++i) {
      const OpKind kind = programs[s][i].kind;
      if (kind != OpKind::kForward && !IsBackward(kind)) continue;
      first = std::min(first, t.stages[s][i].start);
      last = std::max(last, t.stages[s][i].end);
      busy += t.stages[s][i].end - t.stages[s][i].start;
    }
  }
  return last > first ? 1 - busy / (static_cast<double>(programs.size()) * (last - first)) : 0;
}

}  // namespace

bool IsBackward(OpKind kind) { return kind == OpKind::kBackward || kind == OpKind::kBackwardInput || kind == OpKind::kBackwardWeight; }
bool IsCompute(OpKind kind) { return kind == OpKind::kRoute || kind == OpKind::kForward || IsBackward(kind); }

absl::StatusOr<Timeline> Simulate(const std::vector<StageProgram>& programs, const std::function<double(int64_t, const Op&)>& seconds, double transfer, const Machine& machine, int64_t ranks_per_stage) {
  MOE_ASSIGN_OR_RETURN(Timeline t, Player(programs, seconds, transfer, machine, ranks_per_stage).Play());
  t.bubble = Bubble(programs, t);
  return t;
}

double IdealBubble(const ScheduleShape& shape, double f, double b, double w) {
  const double fill = static_cast<double>(shape.stages - 1), work = static_cast<double>(shape.micro_batches) * (f + b);
  double idle = fill * (f + b);
  if (shape.kind == ScheduleKind::kInterleaved) idle /= static_cast<double>(shape.virtual_stages);
  if (shape.kind == ScheduleKind::kZeroBubble) idle = std::max(0.0, fill * (f + b - 2 * w));
  return idle + work > 0 ? idle / (idle + work) : 0;
}

}  // namespace moe
