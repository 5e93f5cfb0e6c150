#include "core/plan/collectives.h"

#include <algorithm>

#include "core/plan/loss_rows.h"

namespace moe {
namespace {

using Kind = Collective::Kind;

class List {
 public:
  List(const CollectiveShape& shape, const GroupSizes& sizes) : shape_(shape), c_(shape.config), sizes_(sizes) {}

  // Everything that a micro-batch does in a chunk on its way up.
  void Forward(const Chunk& chunk, bool with_head) {
    if (chunk.embedding) Add(Kind::kAllToAllV, GroupKind::kTp, "embedding reduce");
    for (int64_t l = chunk.first_layer; l < chunk.first_layer + chunk.num_layers; ++l) {
      layer_ = l;
      Add(Kind::kAllToAllV, GroupKind::kTp, "attention gather");
      Add(Kind::kAllGather, GroupKind::kCp, "attention kv");
      Add(Kind::kAllToAllV, GroupKind::kTp, "attention reduce");
      if (Dense()) {
        DenseFfn();
        continue;
      }
      if (c_.gate().has_capacity_factor()) Capacity();
      Add(Kind::kAllGather, GroupKind::kEp, "counts");
      Add(Kind::kAllToAllV, GroupKind::kEp, "dispatch");
      Add(Kind::kAllGather, GroupKind::kEtp, "etp counts");
      Add(Kind::kAllToAllV, GroupKind::kEtp, "etp gather");
      Add(Kind::kAllToAllV, GroupKind::kEtp, "etp reduce");
      Add(Kind::kAllToAllV, GroupKind::kEp, "combine");
    }
    layer_ = -1;
    if (!chunk.head || !with_head) return;
    Add(Kind::kAllToAllV, GroupKind::kTp, "head gather");
    const int64_t block = LossRows(c_.model().vocab_size(), Size(GroupKind::kTp));
    for (int64_t row = 0; row == 0 || row < shape_.head_rows; row += block) Add(Kind::kAllGather, GroupKind::kTp, "head softmax");
    if (shape_.training) Add(Kind::kAllToAllV, GroupKind::kTp, "head reduce");
  }

  void Backward(const Chunk& chunk) {
    for (int64_t l = chunk.first_layer + chunk.num_layers - 1; l >= chunk.first_layer; --l) {
      layer_ = l;
      if (Dense()) {
        DenseFfn();
      } else {
        Add(Kind::kAllToAllV, GroupKind::kEp, "dispatch");
        Add(Kind::kAllToAllV, GroupKind::kEtp, "etp gather");
        Add(Kind::kAllToAllV, GroupKind::kEtp, "etp reduce");
        Add(Kind::kAllToAllV, GroupKind::kEp, "combine");
      }
      Add(Kind::kAllToAllV, GroupKind::kTp, "attention gather");
      Add(Kind::kAllToAllV, GroupKind::kCp, "attention dkv reduce");
      Add(Kind::kAllToAllV, GroupKind::kTp, "attention reduce");
    }
    layer_ = -1;
    if (chunk.embedding) Add(Kind::kAllToAllV, GroupKind::kTp, "embedding gather");
  }

  void Exchange(const std::vector<Transfer>& transfers) {
    for (const Transfer& t : transfers) {
      Add(t.send ? Kind::kSend : Kind::kReceive, GroupKind::kPp, t.gradient ? "gradient" : "activation");
      out_.back().transfer = t;
    }
  }

  void Add(Kind kind, GroupKind group, const char* what) {
    const bool message = kind == Kind::kSend || kind == Kind::kReceive;
    if (!message && Size(group) == 1) return;
    Collective c;
    c.kind = kind;
    c.group = group;
    c.what = what;
    c.layer = layer_;
    out_.push_back(std::move(c));
  }

  std::vector<Collective> Take() { return std::move(out_); }

 private:
  bool Dense() const { return layer_ < c_.model().num_dense_layers(); }
  int64_t Size(GroupKind kind) const { return sizes_[static_cast<size_t>(kind)]; }

  void DenseFfn() {
    Add(Kind::kAllToAllV, GroupKind::kTp, "ffn gather");
    Add(Kind::kAllToAllV, GroupKind::kTp, "ffn reduce");
  }

  // Agree and ApplyCapacity (core/moe/capacity.h).
  void Capacity() {
    Add(Kind::kAllReduce, GroupKind::kStage, "routing agreed");
    Add(Kind::kAllReduce, GroupKind::kStage, "capacity");
    if (c_.gate().capacity_scope() != "global") return;
    if (c_.gate().drop_policy() == "position") {
      Add(Kind::kAllGather, GroupKind::kStage, "choices");
    } else {
      Add(Kind::kAllGather, GroupKind::kStage, "routes counts");
      Add(Kind::kAllGather, GroupKind::kStage, "routes");
    }
  }

  const CollectiveShape& shape_;
  const config::Config& c_;
  const GroupSizes& sizes_;
  int64_t layer_ = -1;
  std::vector<Collective> out_;
};

}  // namespace

const char* Name(Kind kind) {
  constexpr const char* names[] = {"all-gather", "all-to-all", "all-reduce", "send", "receive"};
  return names[static_cast<int>(kind)];
}

GroupSizes GroupSizesOf(const Mesh& mesh, int64_t rank) {
  GroupSizes sizes;
  for (GroupKind kind : kGroupKinds) sizes[static_cast<size_t>(kind)] = mesh.GroupSize(kind, rank);
  return sizes;
}

std::vector<Collective> CollectivesOf(const Op& op, const CollectiveShape& shape, const GroupSizes& sizes) {
  List list(shape, sizes);
  const auto reduce = [&](GroupKind group, const char* what) { list.Add(Kind::kAllReduce, group, what); };
  switch (op.kind) {
    case OpKind::kBegin:
      list.Add(Kind::kAllGather, GroupKind::kReplica, "begin");
      list.Add(Kind::kAllGather, GroupKind::kDp, "begin");
      break;
    case OpKind::kRoute: list.Forward(shape.chunks[op.chunk], false); break;
    case OpKind::kForward: list.Forward(shape.chunks[op.chunk], true); break;
    case OpKind::kBackward:
    case OpKind::kBackwardInput: list.Backward(shape.chunks[op.chunk]); break;
    case OpKind::kBackwardWeight: break;
    case OpKind::kExchange: list.Exchange(op.transfers); break;
    case OpKind::kReduceRouting:
      for (GroupKind group : {GroupKind::kStage, GroupKind::kPp}) {
        reduce(group, "routing counts");
        reduce(group, "routing probabilities");
      }
      break;
    case OpKind::kReduceDense: reduce(GroupKind::kDpCp, "dense gradients"); break;
    case OpKind::kReduceReplicated: reduce(GroupKind::kStage, "replicated gradients"); break;
    case OpKind::kReduceExpert: reduce(GroupKind::kEdp, "expert gradients"); break;
    case OpKind::kReduceTied: reduce(GroupKind::kEnds, "tied gradients"); break;
    case OpKind::kReduceMetrics:
      reduce(GroupKind::kDpCp, "metrics");
      reduce(GroupKind::kPp, "metrics");
      break;
    case OpKind::kReduceNorm:
      reduce(GroupKind::kStage, "norm");
      reduce(GroupKind::kPp, "norm");
      break;
    case OpKind::kUpdate: break;
  }
  return list.Take();
}

}  // namespace moe
