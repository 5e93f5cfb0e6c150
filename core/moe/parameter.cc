#include "core/moe/parameter.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "core/base/random.h"

namespace moe {
namespace {
// Parameters start on cache lines, so that operations on them do not depend on their neighbours.
int64_t Padded(int64_t n) { return (n + 15) / 16 * 16; }
}  // namespace

const char* Name(ParamKind kind) {
  constexpr const char* names[] = {"dense", "replicated", "expert"};
  return names[static_cast<int>(kind)];
}

absl::StatusOr<Param*> ParamStore::Declare(Param p) {
  if (memory_[0][0].data()) return FailedPrecondition("parameter ", p.name, " was declared after the store was materialised");
  int64_t at = 0;
  for (const ParamPiece& q : p.pieces) {
    if (q.local_offset != at) return Internal("parameter ", p.name, ": piece ", q.name, " starts at ", q.local_offset, ", expected ", at);
    at += q.size();
    if (q.shape.size() != q.global_shape.size() || q.begin.size() != q.shape.size()) return Internal("piece ", q.name, ": ranks of its shapes differ");
    if (!names_.insert(absl::StrCat(q.name, "@", absl::StrJoin(q.begin, ","))).second) return InvalidArgument("two parameters are named ", q.name);
  }
  if (at != p.size()) return Internal("parameter ", p.name, ": pieces cover ", at, " of ", p.size(), " elements");
  params_.push_back(std::move(p));
  return &params_.back();
}

absl::StatusOr<Param*> ParamStore::DeclareWhole(const std::string& name, ParamKind kind, std::vector<int64_t> shape, double init_mean, double init_stddev, bool decay) {
  MOE_ASSIGN_OR_RETURN(Param * p, DeclareBlock(name, kind, shape, std::vector<int64_t>(shape.size(), 0), shape, init_stddev));
  p->init_mean = init_mean;
  p->decay = decay;
  return p;
}

absl::StatusOr<Param*> ParamStore::DeclareBlock(const std::string& name, ParamKind kind, std::vector<int64_t> global_shape, std::vector<int64_t> begin, std::vector<int64_t> shape, double init_stddev) {
  Param p;
  p.name = name;
  p.kind = kind;
  p.shape = shape;
  p.init_stddev = init_stddev;
  ParamPiece q;
  q.name = name;
  q.global_shape = std::move(global_shape);
  q.begin = std::move(begin);
  q.shape = std::move(shape);
  p.pieces.push_back(std::move(q));
  return Declare(std::move(p));
}

absl::Status ParamStore::Materialize(uint64_t seed) {
  for (int k = 0; k < kNumParamKinds; ++k) {
    int64_t n = 0;
    for (const Param& p : params_) if (static_cast<int>(p.kind) == k) n += Padded(p.size());
    for (int which = 0; which < 2; ++which) {
      MOE_ASSIGN_OR_RETURN(memory_[which][k], Buffer::Make(device_, std::max<int64_t>(n, 1) * SizeOf(dtype_)));
      TensorView flat(memory_[which][k].data(), dtype_, {n});
      MOE_RETURN_IF_ERROR(device_->Fill(flat, 0));
      (which == 0 ? value_ : grad_)[k] = flat;
    }
    int64_t at = 0;
    for (Param& p : params_) {
      if (static_cast<int>(p.kind) != k) continue;
      p.value = TensorView(value_[k].Rows(at, p.size()).data(), dtype_, p.shape);
      p.grad = TensorView(grad_[k].Rows(at, p.size()).data(), dtype_, p.shape);
      at += Padded(p.size());
    }
  }
  for (Param& p : params_) {
    for (const ParamPiece& q : p.pieces) {
      TensorView v = PieceView(p.value, q);
      if (p.init_stddev == 0) {
        MOE_RETURN_IF_ERROR(device_->Fill(v, p.init_mean));
        continue;
      }
      // Runs of the block that are contiguous in the global tensor: whole rows of the last dimension.
      const uint64_t key = StreamKey(seed, q.name);
      const int64_t width = q.shape.back(), rows = q.size() / std::max<int64_t>(width, 1);
      const bool whole = q.shape == q.global_shape;
      for (int64_t r = 0; r < (whole ? std::min<int64_t>(rows, 1) : rows); ++r) {
        int64_t global = 0, rest = r, scale = 1;
        std::vector<int64_t> index(q.shape.size(), 0);
        for (int d = static_cast<int>(q.shape.size()) - 2; d >= 0; --d) { index[d] = rest % q.shape[d]; rest /= q.shape[d]; }
        for (int d = static_cast<int>(q.shape.size()) - 1; d >= 0; --d) { global += (q.begin[d] + index[d]) * scale; scale *= q.global_shape[d]; }
        TensorView run = whole ? v.Flat() : v.Flat().Rows(r * width, width);
        MOE_RETURN_IF_ERROR(device_->RandomNormal(run, key, global, p.init_mean, p.init_stddev));
      }
    }
  }
  return absl::OkStatus();
}

int64_t ParamStore::count(ParamKind kind) const {
  int64_t n = 0;
  for (const Param& p : params_) if (p.kind == kind) n += p.size();
  return n;
}

absl::Status ParamStore::ZeroGrad() {
  for (const TensorView& g : grad_) MOE_RETURN_IF_ERROR(device_->Fill(g, 0));
  return absl::OkStatus();
}

absl::StatusOr<std::pair<Param*, const ParamPiece*>> ParamStore::Find(const std::string& global_name) {
  std::vector<std::string> near;
  for (Param& p : params_) {
    for (const ParamPiece& q : p.pieces) {
      if (q.name == global_name && q.shape == q.global_shape) return std::make_pair(&p, &q);
      if (near.size() < 8 && q.name.substr(0, q.name.find('.')) == global_name.substr(0, global_name.find('.'))) near.push_back(q.name);
    }
  }
  return absl::NotFoundError(absl::StrCat("no parameter of this rank is named '", global_name, "'; near names: ", absl::StrJoin(near, ", ")));
}

TensorView PieceView(const TensorView& whole, const ParamPiece& piece) {
  return TensorView(whole.Flat().Rows(piece.local_offset, piece.size()).data(), whole.dtype(), piece.shape);
}

}  // namespace moe
