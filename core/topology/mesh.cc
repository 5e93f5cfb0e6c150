#include "core/topology/mesh.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_join.h"

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
  }
  return {};
}

int I(Axis a) { return static_cast<int>(a); }

std::string Divisors(int64_t n) {
  std::vector<int64_t> d;
  for (int64_t i = 1; i <= n && d.size() < 16; ++i)
    if (n % i == 0) d.push_back(i);
  return absl::StrJoin(d, ", ");
}

}  // namespace

const char* Name(Axis a) {
  constexpr const char* names[] = {"tp", "cp", "dp", "pp", "etp", "ep", "edp"};
  return names[I(a)];
}
const char* Name(GroupKind k) {
  constexpr const char* names[] = {"tp", "cp", "dp", "pp", "dp_cp", "etp", "ep", "edp", "stage"};
  return names[static_cast<int>(k)];
}

absl::StatusOr<Mesh> Mesh::Make(int64_t world, const MeshSizes& s, bool pp_slowest) {
  const std::pair<const char*, int64_t> given[] = {{"tp", s.tp}, {"cp", s.cp}, {"dp", s.dp}, {"pp", s.pp}, {"etp", s.etp}, {"ep", s.ep}};
  for (const auto& [name, value] : given)
    if (value < 1) return InvalidArgument("mesh.", name, " is ", value, ", must be at least 1");
  if (world < 1) return InvalidArgument("ranks is ", world, ", must be at least 1");
  const int64_t attention = s.tp * s.cp * s.dp * s.pp;
  if (attention != world)
    return InvalidArgument("mesh.tp ", s.tp, " x mesh.cp ", s.cp, " x mesh.dp ", s.dp, " x mesh.pp ", s.pp, " is ", attention, ", but ranks is ", world,
                           world % (s.tp * s.cp * s.pp) == 0 ? absl::StrCat("; mesh.dp=", world / (s.tp * s.cp * s.pp), " would fit") : "");
  const int64_t moe = s.etp * s.ep * s.pp;
  if (world % moe != 0)
    return InvalidArgument("mesh.etp ", s.etp, " x mesh.ep ", s.ep, " x mesh.pp ", s.pp, " is ", moe, ", which does not divide ranks, which is ", world, "; mesh.ep can be one of ",
                           Divisors(std::max<int64_t>(world / std::max<int64_t>(s.pp * s.etp, 1), 1)));
  Mesh m;
  m.world_ = world;
  m.size_ = {s.tp, s.cp, s.dp, s.pp, s.etp, s.ep, world / moe};
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

std::vector<int64_t> Mesh::Group(GroupKind kind, int64_t rank) const {
  std::vector<int64_t> members = {rank};
  for (Axis axis : Varied(kind)) {
    std::vector<int64_t> wider;
    for (int64_t r : members) {
      const int64_t base = r - coordinate(r, axis) * stride_[I(axis)];
      for (int64_t c = 0; c < size(axis); ++c) wider.push_back(base + c * stride_[I(axis)]);
    }
    members = std::move(wider);
  }
  std::sort(members.begin(), members.end());
  return members;
}

std::vector<std::vector<int64_t>> Mesh::Groups(GroupKind kind) const {
  std::vector<std::vector<int64_t>> out;
  for (int64_t r = 0; r < world_; ++r) {
    std::vector<int64_t> g = Group(kind, r);
    if (g.front() == r) out.push_back(std::move(g));
  }
  return out;
}

int64_t Mesh::GroupId(GroupKind kind, int64_t rank) const {
  return static_cast<int64_t>(kind) * world_ + Group(kind, rank).front();
}

absl::StatusOr<Mesh> MeshFromConfig(int64_t world, const config::MeshConfig& c, int64_t experts) {
  MeshSizes s;
  s.tp = std::max(c.tp(), 1);
  s.cp = std::max(c.cp(), 1);
  s.pp = std::max(c.pp(), 1);
  s.etp = std::max(c.etp(), 1);
  const int64_t attention = s.tp * s.cp * s.pp;
  if (c.dp() == 0 && world % attention != 0)
    return InvalidArgument("ranks is ", world, ", not divisible by mesh.tp ", s.tp, " x mesh.cp ", s.cp, " x mesh.pp ", s.pp);
  s.dp = c.dp() > 0 ? c.dp() : world / attention;
  if (c.ep() > 0) {
    s.ep = c.ep();
  } else {
    if (world % (s.pp * s.etp) != 0) return InvalidArgument("ranks is ", world, ", not divisible by mesh.pp ", s.pp, " x mesh.etp ", s.etp);
    s.ep = std::gcd(world / (s.pp * s.etp), experts);
  }
  return Mesh::Make(world, s);
}

}  // namespace moe
