// The arithmetic of ranks: two mixed-radix maps over the same W ranks, order of axes tp-cp-ep-dp-pp, first axis fastest.
//   attention: (tp, cp, dp, pp)     W = tp cp dp pp
//   MoE:       (etp, ep, edp, pp)   W = etp ep edp pp
// The pipeline coordinate of a rank must be the same in both maps: else an all-to-all of experts would cross pipeline stages
// and ranks of different stages would wait for each other for ever. Pure integers; no rank is needed to ask.
#ifndef MOE_CORE_TOPOLOGY_MESH_H_
#define MOE_CORE_TOPOLOGY_MESH_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/config/config.pb.h"

namespace moe {

enum class Axis { kTp, kCp, kDp, kPp, kEtp, kEp, kEdp };
const char* Name(Axis axis);

struct MeshSizes { int64_t tp = 1, cp = 1, dp = 1, pp = 1, etp = 1, ep = 1; };

// Which axes a group varies. Products of axes: `kDpCp` (the ranks that split the batch), `kStage` (all ranks of a pipeline
// stage), `kReplica` (tp, cp, pp: the ranks that work on the same sequences). `kEnds` is the first and the last rank of a
// pipeline group, which share tied embeddings; other ranks are alone in theirs.
enum class GroupKind { kTp, kCp, kDp, kPp, kDpCp, kEtp, kEp, kEdp, kStage, kReplica, kEnds };
const char* Name(GroupKind kind);
// In the order in which every rank creates its groups.
constexpr std::array<GroupKind, 11> kGroupKinds = {GroupKind::kTp, GroupKind::kCp, GroupKind::kDp, GroupKind::kPp, GroupKind::kDpCp, GroupKind::kEtp,
                                                   GroupKind::kEp, GroupKind::kEdp, GroupKind::kStage, GroupKind::kReplica, GroupKind::kEnds};

struct MeshGroup {
  GroupKind kind;
  int64_t id;                      // unique among all groups of the mesh, the same on all members
  std::vector<int64_t> members;    // global ranks, ascending
};

// Immutable. Ranks given to it must be in 0 .. world_size-1.
class Mesh {
 public:
  // INVALID_ARGUMENT naming mesh.<axis>, its value and the nearest that work. `pp_slowest` false puts the pipeline before data
  // parallelism (order tp-cp-ep-pp-dp), which is refused whenever the two maps then disagree on stages.
  static absl::StatusOr<Mesh> Make(int64_t world_size, const MeshSizes& sizes, bool pp_slowest = true);

  int64_t world_size() const { return world_; }
  int64_t size(Axis axis) const;
  int64_t coordinate(int64_t rank, Axis axis) const;
  // Ranks in the group of this kind that `rank` belongs to, and its index among them. Integers alone: no list is made.
  int64_t GroupSize(GroupKind kind, int64_t rank) const;
  int64_t GroupRank(GroupKind kind, int64_t rank) const;
  // The smallest member: the same for two ranks if and only if they are in the same group of this kind.
  int64_t FirstMember(GroupKind kind, int64_t rank) const;
  // Members of the group of this kind that `rank` belongs to, ascending.
  std::vector<int64_t> Group(GroupKind kind, int64_t rank) const;
  // All groups of a kind, ordered by their first member.
  std::vector<std::vector<int64_t>> Groups(GroupKind kind) const;
  // The id of that group.
  int64_t GroupId(GroupKind kind, int64_t rank) const;
  // Every group of every kind, in the order in which every rank creates those that it belongs to.
  std::vector<MeshGroup> AllGroups() const;
  // INVALID_ARGUMENT naming axis, ranks and stages when the ranks, which are to share the experts of a layer, are not all of
  // one pipeline stage.
  absl::Status CheckWithinStage(absl::Span<const int64_t> members) const;

 private:
  Mesh() = default;
  bool AloneBetweenEnds(GroupKind kind, int64_t rank) const;

  int64_t world_ = 1;
  std::array<int64_t, 7> size_{}, stride_{};   // by Axis
};

// Fills what is 0 (tp, pp, cp, etp: 1; ep: the greatest common divisor of the ranks of a stage / etp and the experts; dp: the
// rest) and makes the mesh. Errors name mesh.<axis>, value and remedy.
absl::StatusOr<Mesh> MeshFromConfig(int64_t world_size, const config::MeshConfig& c, int64_t num_global_experts);

}  // namespace moe
#endif  // MOE_CORE_TOPOLOGY_MESH_H_
