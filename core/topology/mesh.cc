#include "core/topology/mesh.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_join.h"
#include "core/topology/nearest.h"

namespace moe {
namespace {

constexpr Axis kAttention[] = {Axis::kTp, Axis::kCp, Axis::kDp, Axis::kPp};
constexpr Axis kMoe[] = {Axis::kEtp, Axis::kEp, Axis::kEdp, Axis::kPp};

std::vector<Axis> Varied(GroupKind kind) {
  switch (kind) {
    case GroupKind::kTp: return {Axis::kTp};
    case GroupKind::kCp: return {Axis::kCp};
    case GroupKind::kDp: return {Axis::kDp};
    case GroupKind::kPp: return {Axis::kPp};
    case GroupKind::kDpCp: return {Axis::kCp, Axis::kDp};
    case GroupKind::kEtp: return {Axis::kEtp};
    case GroupKind::kEp: return {Axis::kEp};
    case GroupKind::kEdp: return {Axis::kEdp};
    case GroupKind::kStage: return {Axis::kTp, Axis::kCp, Axis::kDp};
    case GroupKind::kReplica: return {Axis::kTp, Axis::kCp, Axis::kPp};
    case GroupKind::kEnds: return {Axis::kPp};   // of which only the ends are members
  }
  return {};
}

int I(Axis a) { return static_cast<int>(a); }

// Takes an axis out of the ranks that are left; `from` says what they are.
absl::Status TakeOut(const char* axis, int64_t value, const std::string& from, int64_t* left) {
  if (value < 1) return InvalidArgument("mesh.", axis, " is ", value, ", must be at least 1");
  if (*left % value != 0)
    return InvalidArgument("mesh.", axis, " ", value, " does not divide ", from, ", which is ", *left, "; nearest that does: mesh.", axis, "=", NearestDivisors(*left, value));
  *left /= value;
  return absl::OkStatus();
}

struct Left { int64_t dp = 0, edp = 0; };   // what the other axes leave for the last one of each map

absl::StatusOr<Left> TakeOutAll(int64_t world, const MeshSizes& s, bool with_ep) {
  if (world < 1) return InvalidArgument("ranks is ", world, ", must be at least 1");
  int64_t stage = world;
  MOE_RETURN_IF_ERROR(TakeOut("pp", s.pp, "ranks", &stage));
  Left left{stage, stage};
  const std::string of_stage = absl::StrCat("the ranks of a stage (ranks ", world, " / mesh.pp ", s.pp, ")");
  MOE_RETURN_IF_ERROR(TakeOut("tp", s.tp, of_stage, &left.dp));
  MOE_RETURN_IF_ERROR(TakeOut("cp", s.cp, absl::StrCat(of_stage, " / mesh.tp ", s.tp), &left.dp));
  MOE_RETURN_IF_ERROR(TakeOut("etp", s.etp, of_stage, &left.edp));
  if (with_ep) MOE_RETURN_IF_ERROR(TakeOut("ep", s.ep, absl::StrCat(of_stage, " / mesh.etp ", s.etp), &left.edp));
  return left;
}

}  // namespace

const char* Name(Axis a) {
  constexpr const char* names[] = {"tp", "cp", "dp", "pp", "etp", "ep", "edp"};
  return names[I(a)];
}
const char* Name(GroupKind k) {
  constexpr const char* names[] = {"tp", "cp", "dp", "pp", "dp_cp", "etp", "ep", "edp", "stage", "replica", "ends"};
  return names[static_cast<int>(k)];
}

absl::StatusOr<Mesh> Mesh::Make(int64_t world, const MeshSizes& s, bool pp_slowest) {
  MOE_ASSIGN_OR_RETURN(const Left left, TakeOutAll(world, s, true));
  if (s.dp != left.dp)
    return InvalidArgument("mesh.dp ", s.dp, " x mesh.tp ", s.tp, " x mesh.cp ", s.cp, " x mesh.pp ", s.pp, " is not the number of ranks: ranks is ", world, "; use mesh.dp=", left.dp, " or leave it out");
  Mesh m;
  m.world_ = world;
  m.size_ = {s.tp, s.cp, s.dp, s.pp, s.etp, s.ep, left.edp};
  // Order: the axes inside a stage, then pp; or pp before the data-parallel axes.
  const auto strides = [&](const Axis (&axes)[4]) {
    std::array<int64_t, 4> order = {0, 1, 2, 3};
    if (!pp_slowest) std::swap(order[2], order[3]);
    std::array<int64_t, 4> stride{};
    int64_t at = 1;
    for (int64_t i : order) {
      stride[i] = at;
      at *= m.size_[I(axes[i])];
    }
    return stride;
  };
  const auto a = strides(kAttention), e = strides(kMoe);
  for (int i = 0; i < 4; ++i) {
    m.stride_[I(kAttention[i])] = a[i];
    if (i < 3) m.stride_[I(kMoe[i])] = e[i];
  }
  // The pipeline groups of both maps must be the same ranks.
  if (s.pp > 1 && a[3] != e[3]) {
    std::vector<int64_t> in_attention, in_moe;
    for (int64_t p = 0; p < s.pp; ++p) {
      in_attention.push_back(p * a[3]);
      in_moe.push_back(p * e[3]);
    }
    return InvalidArgument("this order of axes puts pipeline group [", absl::StrJoin(in_attention, ","), "] of the attention map (tp, cp, dp, pp) against [", absl::StrJoin(in_moe, ","),
                           "] of the MoE map (etp, ep, edp, pp): an all-to-all over mesh.ep would cross pipeline stages and hang. Put pp last (slowest)");
  }
  return m;
}

int64_t Mesh::size(Axis a) const { return size_[I(a)]; }
int64_t Mesh::coordinate(int64_t rank, Axis a) const { return rank / stride_[I(a)] % size_[I(a)]; }

// Between the ends of a pipeline group: a group of its own.
bool Mesh::AloneBetweenEnds(GroupKind kind, int64_t rank) const {
  const int64_t stage = coordinate(rank, Axis::kPp);
  return kind == GroupKind::kEnds && stage != 0 && stage != size(Axis::kPp) - 1;
}

int64_t Mesh::GroupSize(GroupKind kind, int64_t rank) const {
  if (kind == GroupKind::kEnds) return AloneBetweenEnds(kind, rank) ? 1 : std::min<int64_t>(2, size(Axis::kPp));
  int64_t n = 1;
  for (Axis axis : Varied(kind)) n *= size(axis);
  return n;
}

int64_t Mesh::GroupRank(GroupKind kind, int64_t rank) const {
  if (kind == GroupKind::kEnds) return AloneBetweenEnds(kind, rank) || coordinate(rank, Axis::kPp) == 0 ? 0 : 1;
  int64_t index = 0, scale = 1;
  for (Axis axis : Varied(kind)) {   // fastest axis first: ascending ranks
    index += coordinate(rank, axis) * scale;
    scale *= size(axis);
  }
  return index;
}

int64_t Mesh::FirstMember(GroupKind kind, int64_t rank) const {
  if (AloneBetweenEnds(kind, rank)) return rank;
  for (Axis axis : Varied(kind)) rank -= coordinate(rank, axis) * stride_[I(axis)];
  return rank;
}

std::vector<int64_t> Mesh::Group(GroupKind kind, int64_t rank) const {
  if (kind == GroupKind::kEnds) {
    const int64_t first = FirstMember(kind, rank);
    if (GroupSize(kind, rank) == 1) return {first};
    return {first, first + (size(Axis::kPp) - 1) * stride_[I(Axis::kPp)]};
  }
  std::vector<int64_t> members = {FirstMember(kind, rank)};
  for (Axis axis : Varied(kind)) {
    const size_t n = members.size();
    for (int64_t c = 1; c < size(axis); ++c)
      for (size_t i = 0; i < n; ++i) members.push_back(members[i] + c * stride_[I(axis)]);
  }
  std::sort(members.begin(), members.end());
  return members;
}

std::vector<std::vector<int64_t>> Mesh::Groups(GroupKind kind) const {
  std::vector<std::vector<int64_t>> out;
  for (int64_t r = 0; r < world_; ++r)
    if (FirstMember(kind, r) == r) out.push_back(Group(kind, r));
  return out;
}

int64_t Mesh::GroupId(GroupKind kind, int64_t rank) const { return static_cast<int64_t>(kind) * world_ + FirstMember(kind, rank); }

std::vector<MeshGroup> Mesh::AllGroups() const {
  std::vector<MeshGroup> out;
  for (GroupKind kind : kGroupKinds)
    for (const std::vector<int64_t>& members : Groups(kind)) out.push_back({kind, GroupId(kind, members.front()), members});
  return out;
}

absl::Status Mesh::CheckWithinStage(absl::Span<const int64_t> members) const {
  for (int64_t r : members) {
    if (r < 0 || r >= world_) return InvalidArgument("rank ", r, " of the group is outside the world of ", world_);
    const int64_t first = members.front();
    if (coordinate(r, Axis::kPp) != coordinate(first, Axis::kPp))
      return InvalidArgument("group [", absl::StrJoin(members, ","), "] of an MoE layer crosses the pipeline axis pp: rank ", first, " is in stage ", coordinate(first, Axis::kPp), ", rank ", r, " in stage ",
                             coordinate(r, Axis::kPp), "; its all-to-all would hang. Give a group of ranks of one stage, such as the expert-parallel group [",
                             absl::StrJoin(Group(GroupKind::kEp, first), ","), "]");
  }
  return absl::OkStatus();
}

absl::StatusOr<Mesh> MeshFromConfig(int64_t world, const config::MeshConfig& c, int64_t experts) {
  const auto given = [](int64_t value) { return value == 0 ? 1 : value; };
  MeshSizes s;
  s.tp = given(c.tp());
  s.cp = given(c.cp());
  s.pp = given(c.pp());
  s.etp = given(c.etp());
  MOE_ASSIGN_OR_RETURN(const Left left, TakeOutAll(world, s, false));
  s.dp = c.dp() == 0 ? left.dp : c.dp();
  s.ep = c.ep() == 0 ? std::gcd(left.edp, experts) : c.ep();
  return Mesh::Make(world, s);
}

}  // namespace moe
