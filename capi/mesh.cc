// The arithmetic of ranks across the border, and the groups of an engine's mesh.
#include <algorithm>

#include "capi/engine_state.h"

using moe::capi::Call;
using moe::capi::Catch;
using moe::capi::NullArgument;

// Plain numbers: no engine, no lock, as good in a forked child as in the parent.
struct moe_mesh { const moe::Mesh mesh; };

namespace {

constexpr int64_t kLargestWorld = 65536;   // of an engine

absl::StatusOr<moe::Axis> ReadAxis(int32_t axis) {
  if (axis < MOE_AXIS_TP || axis > MOE_AXIS_EDP) return moe::InvalidArgument("axis is ", axis, ", must be a moe_axis (", MOE_AXIS_TP, " to ", MOE_AXIS_EDP, ")");
  return static_cast<moe::Axis>(axis);
}
absl::StatusOr<moe::GroupKind> ReadKind(int32_t kind) {
  if (kind < MOE_GROUP_TP || kind > MOE_GROUP_ENDS) return moe::InvalidArgument("kind is ", kind, ", must be a moe_group_kind (", MOE_GROUP_TP, " to ", MOE_GROUP_ENDS, ")");
  return static_cast<moe::GroupKind>(kind);
}
absl::Status CheckRank(const moe::Mesh& mesh, int64_t rank) {
  return rank >= 0 && rank < mesh.world_size() ? absl::OkStatus() : moe::InvalidArgument("rank is ", rank, ", ranks of the mesh are 0 to ", mesh.world_size() - 1);
}

// A function of a mesh and one of its groups: f(kind).
template <typename F>
moe_status* OfGroup(const moe_mesh* mesh, int32_t kind, int64_t rank, F f) noexcept {
  return Catch([&]() -> absl::Status {
    if (mesh == nullptr) return NullArgument("mesh");
    MOE_ASSIGN_OR_RETURN(const moe::GroupKind k, ReadKind(kind));
    MOE_RETURN_IF_ERROR(CheckRank(mesh->mesh, rank));
    return f(k);
  });
}

}  // namespace

extern "C" {

moe_status* moe_mesh_create(const moe_config* config, int64_t world_size, moe_mesh** mesh) {
  return Catch([&]() -> absl::Status {
    if (config == nullptr) return NullArgument("config");
    if (mesh == nullptr) return NullArgument("mesh");
    if (world_size < 0 || world_size > kLargestWorld)
      return moe::InvalidArgument("world_size is ", world_size, ", must be 1 to ", kLargestWorld, ", or 0 for the configuration's ranks");
    const moe::config::Config& c = config->config;
    MOE_ASSIGN_OR_RETURN(moe::Mesh made, moe::MeshFromConfig(world_size > 0 ? world_size : c.ranks(), c.mesh(), c.model().num_global_experts()));
    *mesh = new moe_mesh{std::move(made)};
    return absl::OkStatus();
  });
}

int64_t moe_mesh_world_size(const moe_mesh* mesh) { return mesh ? mesh->mesh.world_size() : -1; }

moe_status* moe_mesh_axis_size(const moe_mesh* mesh, int32_t axis, int64_t* size) {
  return Catch([&]() -> absl::Status {
    if (mesh == nullptr) return NullArgument("mesh");
    if (size == nullptr) return NullArgument("size");
    MOE_ASSIGN_OR_RETURN(const moe::Axis a, ReadAxis(axis));
    *size = mesh->mesh.size(a);
    return absl::OkStatus();
  });
}

moe_status* moe_mesh_coordinate(const moe_mesh* mesh, int32_t axis, int64_t rank, int64_t* coordinate) {
  return Catch([&]() -> absl::Status {
    if (mesh == nullptr) return NullArgument("mesh");
    if (coordinate == nullptr) return NullArgument("coordinate");
    MOE_ASSIGN_OR_RETURN(const moe::Axis a, ReadAxis(axis));
    MOE_RETURN_IF_ERROR(CheckRank(mesh->mesh, rank));
    *coordinate = mesh->mesh.coordinate(rank, a);
    return absl::OkStatus();
  });
}

moe_status* moe_mesh_num_groups(const moe_mesh* mesh, int32_t kind, int64_t* num_groups) {
  return OfGroup(mesh, kind, 0, [&](moe::GroupKind k) -> absl::Status {
    if (num_groups == nullptr) return NullArgument("num_groups");
    int64_t n = 0;
    for (int64_t r = 0; r < mesh->mesh.world_size(); ++r) n += mesh->mesh.FirstMember(k, r) == r;
    *num_groups = n;
    return absl::OkStatus();
  });
}

moe_status* moe_mesh_group(const moe_mesh* mesh, int32_t kind, int64_t rank, int64_t* size, int64_t* index) {
  return OfGroup(mesh, kind, rank, [&](moe::GroupKind k) {
    if (size != nullptr) *size = mesh->mesh.GroupSize(k, rank);
    if (index != nullptr) *index = mesh->mesh.GroupRank(k, rank);
    return absl::OkStatus();
  });
}

moe_status* moe_mesh_group_members(const moe_mesh* mesh, int32_t kind, int64_t rank, int64_t* members, int64_t n) {
  return OfGroup(mesh, kind, rank, [&](moe::GroupKind k) -> absl::Status {
    if (members == nullptr) return NullArgument("members");
    const int64_t size = mesh->mesh.GroupSize(k, rank);
    if (n != size) return moe::InvalidArgument("n is ", n, ", must be the size of the ", moe::Name(k), " group of rank ", rank, ", which is ", size);
    const std::vector<int64_t> group = mesh->mesh.Group(k, rank);
    std::copy(group.begin(), group.end(), members);
    return absl::OkStatus();
  });
}

void moe_mesh_destroy(moe_mesh* mesh) { delete mesh; }

moe_status* moe_group_from_mesh(moe_engine* engine, int32_t kind, moe_group** group) {
  return Call("engine", engine, [&]() -> absl::Status {
    if (group == nullptr) return NullArgument("group");
    MOE_ASSIGN_OR_RETURN(const moe::GroupKind k, ReadKind(kind));
    *group = new moe_group(engine->state, engine->state->group(k));
    return absl::OkStatus();
  });
}

}  // extern "C"
