// Parameters: what a module declares, and the flat memory that holds them all.
//
// A local parameter is one tensor of this rank. It is made of pieces: each piece is a block of a tensor with a global,
// layout-free name ("layers.3.moe.experts.5.w1.weight"). Initial values, checkpoints and tests speak of pieces, so
// they do not depend on how ranks share the model. The kind, a field and never a part of the name, decides who
// reduces the gradient and how the norm counts it.
#ifndef MOE_CORE_MOE_PARAMETER_H_
#define MOE_CORE_MOE_PARAMETER_H_

#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <vector>

#include "core/device/device.h"

namespace moe {

enum class ParamKind {
  kDense,       // a tensor-parallel share of attention, dense feed-forward or vocabulary; gradient summed over dp and cp
  kReplicated,  // the same on every rank of a pipeline stage, each of which saw other tokens; gradient summed over the stage
  kExpert,      // held by one expert-parallel rank (and its expert-data-parallel copies); gradient summed over the copies
};
constexpr int kNumParamKinds = 3;
const char* Name(ParamKind kind);   // "dense", "replicated", "expert"

struct ParamPiece {
  std::string name;                    // global name
  std::vector<int64_t> global_shape;   // of the whole tensor with that name
  std::vector<int64_t> begin;          // where this block starts in it, one per dimension
  std::vector<int64_t> shape;          // of this block
  int64_t local_offset = 0;            // first element in the local tensor; the block is contiguous there
  int64_t size() const { int64_t n = 1; for (int64_t d : shape) n *= d; return n; }
};

struct Param {
  std::string name;                 // of the local tensor, for messages: "layers.3.moe.w_in"
  ParamKind kind = ParamKind::kDense;
  std::vector<int64_t> shape;       // local
  std::vector<ParamPiece> pieces;   // together cover the local tensor exactly, ascending local_offset
  double init_mean = 0, init_stddev = 0;
  bool decay = true;                // weight decay applies (matrices yes, norms and biases no)
  // False on all but one of the ranks that hold the same elements besides the copies that the kind speaks of (a bias that all
  // ranks of an expert-tensor-parallel group hold, an embedding that the last pipeline stage shares with the first): the
  // gradient norm and checkpoints take the one.
  bool counted = true;

  TensorView value, grad;           // set by ParamStore::Materialize
  int64_t size() const { int64_t n = 1; for (int64_t d : shape) n *= d; return n; }
};

// Owns values and gradients of all parameters in a flat buffer of each kind.
class ParamStore {
 public:
  explicit ParamStore(Device* device, DType dtype) : device_(device), dtype_(dtype) {}
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;

  Device* device() const { return device_; }
  DType dtype() const { return dtype_; }

  // Before Materialize. The pointer stays valid. INVALID_ARGUMENT if the pieces do not cover the tensor or a
  // (name, begin) occurs twice.
  absl::StatusOr<Param*> Declare(Param p);
  // One piece that is the whole tensor, same name.
  absl::StatusOr<Param*> DeclareWhole(const std::string& name, ParamKind kind, std::vector<int64_t> shape, double init_mean, double init_stddev, bool decay);

  // One piece: the block at `begin` of shape `shape` of a tensor of shape `global_shape`; mean 0, decays.
  absl::StatusOr<Param*> DeclareBlock(const std::string& name, ParamKind kind, std::vector<int64_t> global_shape, std::vector<int64_t> begin, std::vector<int64_t> shape, double init_stddev);

  // Allocates, sets initial values (each element keyed by seed, global name and index in the global tensor), zeroes
  // the gradients.
  absl::Status Materialize(uint64_t seed);

  std::deque<Param>& params() { return params_; }
  const std::deque<Param>& params() const { return params_; }
  // Flat [n] views over all values / gradients of a kind, in order of declaration.
  TensorView flat_value(ParamKind kind) const { return value_[static_cast<int>(kind)]; }
  TensorView flat_grad(ParamKind kind) const { return grad_[static_cast<int>(kind)]; }
  int64_t count(ParamKind kind) const;   // elements of this rank
  absl::Status ZeroGrad();

  // The parameter and piece with this global name whose block is the whole tensor; NOT_FOUND lists near names.
  absl::StatusOr<std::pair<Param*, const ParamPiece*>> Find(const std::string& global_name);

 private:
  Device* device_;
  DType dtype_;
  std::deque<Param> params_;
  std::set<std::string> names_;   // name@begin of every piece
  Buffer memory_[2][kNumParamKinds];   // [value, grad][kind]
  TensorView value_[kNumParamKinds], grad_[kNumParamKinds];
};

// View of a piece inside the local tensor `whole` (value, gradient or optimizer state of the parameter).
TensorView PieceView(const TensorView& whole, const ParamPiece& piece);

}  // namespace moe
#endif  // MOE_CORE_MOE_PARAMETER_H_
