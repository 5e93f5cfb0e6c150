// Simulation of classes of ranks that send and receive without buffers: a collective ends when every member of its group is at
// it, an exchange when the other end of each of its messages has been posted.
#ifndef MOE_CORE_PLAN_RENDEZVOUS_H_
#define MOE_CORE_PLAN_RENDEZVOUS_H_

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/plan/classes.h"

namespace moe {

class Rendezvous {
 public:
  Rendezvous(const World& world, const Classes& classes);

  // As far as it goes. True when every rank has ended.
  bool Run();
  int64_t operations() const { return operations_; }

  // After Run, of one rank:
  bool Ended(int64_t rank) const;
  // Ranks that it waits for now; at most `most` (the smallest ones).
  std::vector<int64_t> WaitsFor(int64_t rank, size_t most) const;
  bool Waits(int64_t rank, int64_t other) const;
  // What it is at: "all-gather \"counts\" of layer 1 in forward of micro-batch 0 on ep group [0,1]".
  std::string Where(int64_t rank) const;
  // The message or collective in which `rank` waits for `other`, as rank says it; and whether `other` has it still ahead.
  std::string WaitText(int64_t rank, int64_t other) const;
  bool ComesLater(int64_t rank, int64_t other) const;
  bool InExchange(int64_t rank) const;

 private:
  struct State {
    std::shared_ptr<const RankProgram> program;
    size_t op = 0, index = 0;                // of the collective in the op
    bool posted = false;                     // the exchange
    int64_t pending = 0;                     // its messages that wait
    std::map<std::array<int64_t, 4>, int64_t> open;   // posted messages that wait
  };

  const RankOp& At(const State& s) const { return (*s.program)[s.op]; }
  const Collective& CollectiveAt(const State& s) const { return (*At(s).collectives)[s.index]; }
  bool Ended(const State& s) const { return s.op == s.program->size(); }
  bool SameCollective(const State& a, const State& b) const;
  void Walk(int64_t c);
  bool Post(int64_t c);
  void Next(State* s);
  int64_t PeerRank(int64_t rank, int64_t stage) const;
  const Transfer* OpenTransfer(int64_t rank, int64_t other) const;

  const World& world_;
  const Classes& classes_;
  std::vector<State> state_;   // by class
  std::deque<int64_t> ready_;
  int64_t operations_ = 0;
};

// "forward of micro-batch 2 (virtual stage 5)", "norm".
std::string Words(const Op& op);
// "ep group [0,1,2,3,...,63]".
std::string GroupWords(const World& world, GroupKind kind, int64_t rank);

}  // namespace moe
#endif  // MOE_CORE_PLAN_RENDEZVOUS_H_
