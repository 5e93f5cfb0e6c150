// What all ranks are about to execute, and what it takes for one of them.
#include <algorithm>

#include "core/plan/check.h"

namespace moe {

int64_t World::GroupSize(GroupKind kind, int64_t rank) const { return changes.empty() ? mesh.GroupSize(kind, rank) : static_cast<int64_t>(Group(kind, rank).size()); }

std::vector<int64_t> World::Group(GroupKind kind, int64_t rank) const {
  std::vector<int64_t> members = mesh.Group(kind, rank);
  const auto in = [](const GroupChange& c, int64_t r) { return std::binary_search(c.members.begin(), c.members.end(), r); };
  for (auto change = changes.rbegin(); change != changes.rend(); ++change) {   // the last one counts
    if (change->kind != kind) continue;
    if (in(*change, rank)) return change->members;
    members.erase(std::remove_if(members.begin(), members.end(), [&](int64_t r) { return in(*change, r); }), members.end());
  }
  return members;
}

RankProgram World::ProgramOf(int64_t rank) const {
  if (const auto it = own.find(rank); it != own.end()) return it->second;
  GroupSizes sizes;
  for (GroupKind kind : kGroupKinds) sizes[static_cast<size_t>(kind)] = GroupSize(kind, rank);
  const CollectiveShape shape{config, chunks, training, head_rows};
  // The list of an op is the same for all micro-batches, except of an exchange.
  std::map<std::pair<OpKind, int64_t>, std::shared_ptr<const std::vector<Collective>>> lists;
  RankProgram out;
  for (const Op& op : programs[mesh.coordinate(rank, Axis::kPp)]) {
    if (op.kind == OpKind::kExchange) {
      out.push_back({op, std::make_shared<const std::vector<Collective>>(CollectivesOf(op, shape, sizes))});
      continue;
    }
    auto& list = lists[{op.kind, op.chunk}];
    if (list == nullptr) list = std::make_shared<const std::vector<Collective>>(CollectivesOf(op, shape, sizes));
    out.push_back({op, list});
  }
  return out;
}

absl::StatusOr<World> MakeWorld(const config::Config& c, const Mesh& mesh, const StepShape& shape, int64_t head_rows) {
  if (shape.schedule.stages != mesh.size(Axis::kPp)) return InvalidArgument("the schedule is for ", shape.schedule.stages, " stages, mesh.pp is ", mesh.size(Axis::kPp));
  if (const int64_t v = VirtualStages(c, shape.schedule.stages); shape.schedule.virtual_stages != v)
    return InvalidArgument("the schedule is for ", shape.schedule.virtual_stages, " virtual stages per stage, pipeline.virtual_stages makes ", v);
  MOE_ASSIGN_OR_RETURN(std::vector<Chunk> chunks, PlaceLayers(c, shape.schedule.stages));
  MOE_ASSIGN_OR_RETURN(std::vector<StageProgram> programs, MakeStepProgram(shape));
  return World{c, mesh, std::move(chunks), std::move(programs), true, head_rows, {}, {}};
}

}  // namespace moe
