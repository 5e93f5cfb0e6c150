// What every operation of a step costs a rank: seconds of computing and of communicating, bytes sent by axis. Per pipeline stage
// and kind of operation, never per rank: all ranks of a stage do the same. Where routing is uneven, all take as long
// as the busiest rank of an expert-parallel group.
//
// A matrix product takes what is longer, its multiply-adds or the reading of its operands; all else is bound by memory. Backward
// is twice the products of forward: one half for the inputs, one for the weights; attention's scores are made again.
#ifndef MOE_CORE_PLAN_REPORT_COSTS_H_
#define MOE_CORE_PLAN_REPORT_COSTS_H_

#include <vector>

#include "core/plan/program.h"
#include "core/plan/report/machine.h"
#include "core/plan/report/parameters.h"

namespace moe {

// One collective or exchange of a rank.
struct Traffic {
  GroupKind group;
  const char* name;      // "dispatch"
  double bytes = 0;      // that the rank sends to others
  double seconds = 0;
};

struct OpCost {
  double compute = 0;    // seconds
  std::vector<Traffic> traffic;
  double communication() const {
    double s = 0;
    for (const Traffic& t : traffic) s += t.seconds;
    return s;
  }
  double seconds() const { return compute + communication(); }
};

// Of one micro-batch on one rank.
struct MicroShape {
  double sequences = 1;      // of the data-parallel rank
  double seq_len = 0;
  double rank_tokens = 0;    // between blocks: split over tp and cp
  double group_tokens = 0;   // in attention: those of the tensor-parallel group
};

class StepCosts {
 public:
  StepCosts(const config::Config& c, const Mesh& mesh, const std::vector<Chunk>& chunks, int64_t micro_batches, const Machine& machine, double imbalance = 1);

  // Of an op of a stage's program. Exchanges cost their senders nothing but the bytes in `traffic`; how long a message is on
  // its way is TransferSeconds.
  const OpCost& Of(int64_t stage, const Op& op) const;
  double TransferSeconds() const { return exchange_.traffic.front().seconds; }
  double TransferBytes() const { return exchange_.traffic.front().bytes; }
  const MicroShape& shape() const { return shape_; }
  int64_t tp() const { return mesh_.size(Axis::kTp); }

  // Bytes that a rank keeps of one micro-batch between forward and backward of a chunk.
  double SavedBytes(const Chunk& chunk) const;

 private:
  struct ChunkCosts { OpCost forward, route, backward, backward_input, backward_weight; };
  ChunkCosts MakeChunk(const Chunk& chunk) const;
  void AddLayer(bool moe_layer, double count, ChunkCosts* out) const;
  double Product(double flops, double operand_bytes) const;
  double Memory(double bytes) const;
  Traffic Collective(GroupKind group, const char* name, double bytes, int phases = 1) const;
  Traffic AllReduce(GroupKind group, const char* name, double bytes) const { return Collective(group, name, 2 * bytes, 2); }
  void MakeStepOps(const std::vector<Chunk>& chunks);

  config::Config c_;
  Mesh mesh_;
  Machine machine_;
  double imbalance_;
  double element_;
  MicroShape shape_;
  std::vector<ChunkCosts> chunks_;
  OpCost exchange_, none_;
  std::vector<std::vector<OpCost>> step_ops_;   // [stage][OpKind]
};

}  // namespace moe
#endif  // MOE_CORE_PLAN_REPORT_COSTS_H_
