// Mistakes on purpose.
#include <algorithm>

#include "core/plan/check.h"

namespace moe {
namespace {

constexpr const char* kNames[] = {"group_across_stages", "unfused_send_recv", "opposite_group_order", "missing_norm_all_reduce", "missing_micro_batch"};

absl::Status Needs(Mistake m, const std::string& what) { return InvalidArgument("seeded mistake ", Name(m), " needs ", what); }

// FastMoE's: the group of the experts was made without regard to stages.
absl::Status GroupAcrossStages(World* w) {
  const int64_t P = w->mesh.size(Axis::kPp);
  if (P < 2) return Needs(Mistake::kGroupAcrossStages, "mesh.pp >= 2");
  const auto has_experts = [&](int64_t stage) {
    return std::any_of(w->chunks.begin(), w->chunks.end(), [&](const Chunk& c) { return c.stage == stage && c.num_layers > 0 && c.first_layer + c.num_layers > w->config.model().num_dense_layers(); });
  };
  int64_t stage = 0;
  while (stage < P && !has_experts(stage)) ++stage;
  if (stage == P) return Needs(Mistake::kGroupAcrossStages, "a layer with experts: model.num_dense_layers below model.num_layers");
  const std::vector<int64_t> pipeline = w->mesh.Group(GroupKind::kPp, 0);
  GroupChange change;
  for (int64_t s : {stage, stage + 1 < P ? stage + 1 : stage - 1})
    for (int64_t r : w->mesh.Group(GroupKind::kEp, pipeline[s])) change.members.push_back(r);
  std::sort(change.members.begin(), change.members.end());
  w->changes.push_back(std::move(change));
  return absl::OkStatus();
}

bool SendsAndReceives(const Op& op, int64_t peer) {
  bool send = false, receive = false;
  for (const Transfer& t : op.transfers)
    if (t.peer == peer) (t.send ? send : receive) = true;
  return send && receive;
}

absl::Status UnfusedSendRecv(World* w) {
  bool possible = false;
  for (size_t s = 0; s < w->programs.size(); ++s)
    for (const Op& op : w->programs[s])
      for (const Transfer& t : op.transfers) {
        if (!t.send || !SendsAndReceives(op, t.peer)) continue;
        for (const Op& other : w->programs[t.peer]) {
          const bool takes = std::any_of(other.transfers.begin(), other.transfers.end(), [&](const Transfer& o) { return !o.send && o.gradient == t.gradient && o.boundary == t.boundary && o.micro == t.micro; });
          possible = possible || (takes && SendsAndReceives(other, static_cast<int64_t>(s)));
        }
      }
  if (!possible) return Needs(Mistake::kUnfusedSendRecv, "two stages that send to each other at the same time: mesh.pp >= 2, at least 2 micro-batches and pipeline.kind=1f1b, interleaved or zero_bubble");
  for (StageProgram& p : w->programs) {
    StageProgram out;
    for (const Op& op : p) {
      if (op.kind != OpKind::kExchange) {
        out.push_back(op);
        continue;
      }
      for (bool send : {true, false})
        for (const Transfer& t : op.transfers) {
          if (t.send != send) continue;
          Op one = op;
          one.transfers = {t};
          out.push_back(one);
        }
    }
    p = std::move(out);
  }
  return absl::OkStatus();
}

// Two collectives on different groups, one right after the other, that have two ranks in common; on one of those they change places.
absl::Status OppositeGroupOrder(World* w) {
  for (int64_t rank : w->mesh.Group(GroupKind::kPp, 0)) {
    const auto partner = [&](GroupKind a, GroupKind b) {
      if (a == b) return int64_t{-1};
      const std::vector<int64_t> in_a = w->mesh.Group(a, rank), in_b = w->mesh.Group(b, rank);
      for (int64_t r : in_a)
        if (r != rank && std::binary_search(in_b.begin(), in_b.end(), r)) return r;
      return int64_t{-1};
    };
    const RankProgram program = w->ProgramOf(rank);
    for (size_t i = 0; i < program.size(); ++i) {
      const std::vector<Collective>& list = *program[i].collectives;
      if (program[i].op.kind == OpKind::kExchange || list.empty()) continue;
      for (size_t k = 0; k + 1 < list.size(); ++k) {
        const int64_t other = partner(list[k].group, list[k + 1].group);
        if (other < 0) continue;
        RankProgram changed = w->ProgramOf(other);
        std::vector<Collective> swapped = *changed[i].collectives;
        std::swap(swapped[k], swapped[k + 1]);
        changed[i].collectives = std::make_shared<const std::vector<Collective>>(std::move(swapped));
        w->own[other] = std::move(changed);
        return absl::OkStatus();
      }
      // Across two ops, when each of them is one collective.
      if (i + 1 == program.size() || program[i + 1].op.kind == OpKind::kExchange || list.size() != 1 || program[i + 1].collectives->size() != 1) continue;
      const int64_t other = partner(list[0].group, program[i + 1].collectives->front().group);
      if (other < 0) continue;
      RankProgram changed = w->ProgramOf(other);
      std::swap(changed[i], changed[i + 1]);
      w->own[other] = std::move(changed);
      return absl::OkStatus();
    }
  }
  return Needs(Mistake::kOppositeGroupOrder, "two groups of different kinds with two ranks in common: at least 2 ranks in a stage, such as mesh.dp >= 2");
}

absl::Status MissingNormAllReduce(World* w) {
  if (w->programs.size() < 2) return Needs(Mistake::kMissingNormAllReduce, "a stage that can go on without the others: mesh.pp >= 2");
  StageProgram& p = w->programs.back();
  p.erase(std::remove_if(p.begin(), p.end(), [](const Op& op) { return op.kind == OpKind::kReduceNorm; }), p.end());
  return absl::OkStatus();
}

absl::Status MissingMicroBatch(World* w) {
  if (w->mesh.world_size() < 2) return Needs(Mistake::kMissingMicroBatch, "a rank that others can miss: ranks >= 2");
  const int64_t rank = w->mesh.GroupSize(GroupKind::kStage, 0) > 1 ? w->mesh.Group(GroupKind::kStage, 0)[1] : 0;
  RankProgram program = w->ProgramOf(rank), out;
  int64_t micro = 0;
  for (const RankOp& o : program) micro = std::max(micro, o.op.micro);
  for (RankOp& o : program) {
    if (o.op.kind == OpKind::kExchange) {
      auto& t = o.op.transfers;
      t.erase(std::remove_if(t.begin(), t.end(), [&](const Transfer& x) { return x.micro == micro; }), t.end());
      if (t.empty()) continue;
      std::vector<Collective> list = *o.collectives;
      list.erase(std::remove_if(list.begin(), list.end(), [&](const Collective& c) { return c.transfer.micro == micro; }), list.end());
      o.collectives = std::make_shared<const std::vector<Collective>>(std::move(list));
    } else if (o.op.micro == micro) {
      continue;
    }
    out.push_back(o);
  }
  w->own[rank] = std::move(out);
  return absl::OkStatus();
}

}  // namespace

const char* Name(Mistake m) { return kNames[static_cast<int>(m)]; }

absl::StatusOr<Mistake> ParseMistake(const std::string& name) {
  for (Mistake m : kMistakes)
    if (name == Name(m)) return m;
  return InvalidArgument("seeded mistake '", name, "' is not known; there are group_across_stages, unfused_send_recv, opposite_group_order, missing_norm_all_reduce, missing_micro_batch");
}

absl::Status SeedMistake(Mistake m, World* w) {
  switch (m) {
    case Mistake::kGroupAcrossStages: return GroupAcrossStages(w);
    case Mistake::kUnfusedSendRecv: return UnfusedSendRecv(w);
    case Mistake::kOppositeGroupOrder: return OppositeGroupOrder(w);
    case Mistake::kMissingNormAllReduce: return MissingNormAllReduce(w);
    case Mistake::kMissingMicroBatch: return MissingMicroBatch(w);
  }
  return absl::OkStatus();
}

}  // namespace moe
