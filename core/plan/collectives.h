// Which messages an operation of a rank's program is made of, in order. The checker simulates them; the engine's parts (blocks
// of a layer, embedding, head, reductions) execute them under the same names.
#ifndef MOE_CORE_PLAN_COLLECTIVES_H_
#define MOE_CORE_PLAN_COLLECTIVES_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/config/config.pb.h"
#include "core/plan/program.h"
#include "core/topology/mesh.h"

namespace moe {

struct Collective {
  enum class Kind { kAllGather, kAllToAllV, kAllReduce, kSend, kReceive };
  Kind kind = Kind::kAllReduce;
  GroupKind group = GroupKind::kStage;
  std::string what;        // "attention gather", "counts", "dispatch", ...
  int64_t layer = -1;      // of the model, -1: not a layer's
  Transfer transfer;       // kSend, kReceive: on kPp
};
const char* Name(Collective::Kind kind);   // "all-gather", "all-to-all", "all-reduce", "send", "receive"

// Ranks in each group of one rank, by kind.
using GroupSizes = std::array<int64_t, kGroupKinds.size()>;
GroupSizes GroupSizesOf(const Mesh& mesh, int64_t rank);

// What the list of an op depends on. The referred to must outlive it.
struct CollectiveShape {
  const config::Config& config;
  const std::vector<Chunk>& chunks;
  bool training = true;     // a forward with the head makes its gradient as well
  int64_t head_rows = 0;    // rows of the head in a micro-batch: tokens of a tensor-parallel group
};

// Of a rank whose groups have these sizes. An entry exists only where the group has more than one rank.
std::vector<Collective> CollectivesOf(const Op& op, const CollectiveShape& shape, const GroupSizes& sizes);

}  // namespace moe
#endif  // MOE_CORE_PLAN_COLLECTIVES_H_
