// The proof before launch: a simulation of every rank's program in which no message is ever buffered. If it ends, the programs
// end at any speed of any rank and with any buffers; if not, it says who waits for whom.
//
// Ranks whose programs and groups look the same move together, so one of them stands for all: without a mistake a class is a
// pipeline stage, and the cost hardly depends on the number of ranks.
#ifndef MOE_CORE_PLAN_CHECK_H_
#define MOE_CORE_PLAN_CHECK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/plan/collectives.h"

namespace moe {

// One op of one rank with what it is made of.
struct RankOp {
  Op op;
  std::shared_ptr<const std::vector<Collective>> collectives;
};
using RankProgram = std::vector<RankOp>;

// Ranks that are in one group of this kind, instead of the mesh's.
struct GroupChange {
  GroupKind kind = GroupKind::kEp;
  std::vector<int64_t> members;   // ascending
};

// What all ranks are about to execute.
struct World {
  config::Config config;
  Mesh mesh;
  std::vector<Chunk> chunks;
  std::vector<StageProgram> programs;      // by stage
  bool training = true;
  int64_t head_rows = 0;                   // see CollectiveShape
  // Ranks that deviate: only mistakes do.
  std::map<int64_t, RankProgram> own;
  std::vector<GroupChange> changes;

  int64_t GroupSize(GroupKind kind, int64_t rank) const;
  std::vector<int64_t> Group(GroupKind kind, int64_t rank) const;
  RankProgram ProgramOf(int64_t rank) const;
};

// The world of a training step. `shape.schedule` has mesh's stages; errors as of PlaceLayers and MakeStepProgram.
absl::StatusOr<World> MakeWorld(const config::Config& c, const Mesh& mesh, const StepShape& shape, int64_t head_rows);

struct Verdict {
  bool free = true;                  // of deadlock
  // One or more lines. Of a mistake: which rule is broken, the two ranks and the two operations that wait for each other.
  std::string text;
  int64_t first_rank = -1, second_rank = -1;            // that wait for each other; -1: nobody waits
  std::string first_operation, second_operation;
  int64_t classes = 0, operations = 0;                  // simulated
};

// INVALID_ARGUMENT only for a world that does not fit together (number of programs, ranks outside).
absl::StatusOr<Verdict> CheckPrograms(const World& world);

// Mistakes that real systems have made, to see that the check finds them.
enum class Mistake { kGroupAcrossStages, kUnfusedSendRecv, kOppositeGroupOrder, kMissingNormAllReduce, kMissingMicroBatch };
constexpr Mistake kMistakes[] = {Mistake::kGroupAcrossStages, Mistake::kUnfusedSendRecv, Mistake::kOppositeGroupOrder, Mistake::kMissingNormAllReduce, Mistake::kMissingMicroBatch};
const char* Name(Mistake mistake);   // "group_across_stages", "unfused_send_recv", "opposite_group_order", "missing_norm_all_reduce", "missing_micro_batch"
absl::StatusOr<Mistake> ParseMistake(const std::string& name);
// INVALID_ARGUMENT naming what the layout needs when the mistake cannot exist in it.
absl::Status SeedMistake(Mistake mistake, World* world);

}  // namespace moe
#endif  // MOE_CORE_PLAN_CHECK_H_
