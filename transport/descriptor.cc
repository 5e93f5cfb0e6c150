#include "transport/descriptor.h"

#include <cstring>
#include <utility>

namespace moe {

const char* Name(MessageKind kind) {
  switch (kind) {
    case MessageKind::kNone: return "nothing";
    case MessageKind::kAllToAllV: return "all_to_all_v";
    case MessageKind::kAllReduce: return "all_reduce";
    case MessageKind::kAllGather: return "all_gather";
    case MessageKind::kReduceScatter: return "reduce_scatter";
    case MessageKind::kBroadcast: return "broadcast";
    case MessageKind::kBarrier: return "barrier";
    case MessageKind::kSend: return "send";
    case MessageKind::kRecv: return "recv";
  }
  return "?";
}

const char* Name(ReduceOp op) { return op == ReduceOp::kSum ? "sum" : op == ReduceOp::kMax ? "max" : "min"; }

namespace {

std::string Call(const Descriptor& d) {
  switch (d.kind) {
    case MessageKind::kAllToAllV: return absl::StrCat(Name(d.kind), "(counts_agreed ", d.counts_agreed ? "true)" : "false)");
    case MessageKind::kAllReduce:
    case MessageKind::kReduceScatter:
      return absl::StrCat(Name(d.kind), "(count ", d.count, ", ", Name(static_cast<DType>(d.dtype)), ", ",
                          Name(static_cast<ReduceOp>(d.reduce)), ")");
    case MessageKind::kBroadcast: return absl::StrCat(Name(d.kind), "(bytes ", d.count, ", root ", d.root, ")");
    case MessageKind::kBarrier: return Name(d.kind);
    default: return absl::StrCat(Name(d.kind), "(bytes ", d.count, ")");
  }
}

}  // namespace

bool Agree(const Descriptor& a, const Descriptor& b) {
  return a.magic == b.magic && a.kind == b.kind && a.dtype == b.dtype && a.reduce == b.reduce &&
         a.counts_agreed == b.counts_agreed && a.root == b.root && a.sequence == b.sequence && a.count == b.count &&
         a.history == b.history && std::memcmp(a.label.text, b.label.text, sizeof(a.label.text)) == 0;
}

std::string ToString(const Descriptor& d) {
  const std::string label(d.label.text, strnlen(d.label.text, sizeof(d.label.text)));
  return label.empty() ? Call(d) : absl::StrCat(Call(d), " for ", label);
}

uint64_t Extend(uint64_t history, const Descriptor& d) {
  uint64_t h = history, label[3];
  static_assert(sizeof(label) == sizeof(d.label.text));
  std::memcpy(label, d.label.text, sizeof(label));
  for (uint64_t v : {static_cast<uint64_t>(d.kind) | uint64_t{d.dtype} << 8 | uint64_t{d.reduce} << 16 | uint64_t{d.counts_agreed} << 24,
                     static_cast<uint64_t>(d.root), static_cast<uint64_t>(d.count), label[0], label[1], label[2]}) {
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    h ^= h >> 32;
  }
  return h;
}

absl::Status Disagreement(int64_t group, int64_t epoch, const Descriptor& a, const Descriptor& b) {
  if (b.source < a.source) return Disagreement(group, epoch, b, a);
  FailureInfo info;
  info.origin_rank = a.source;
  info.failed_ranks = {a.source, b.source};
  info.group = group;
  info.epoch = epoch;
  info.sequence = a.sequence;
  const std::string where = absl::StrCat("group ", group, ", operation ", a.sequence, ": ");
  if (a.magic != b.magic) {
    return WithFailureInfo(Internal(where, "ranks ", a.source, " and ", b.source, " do not understand each other's messages"), info);
  }
  Descriptor same_history = b;
  same_history.history = a.history;
  if (a.history != b.history && Agree(a, same_history)) {
    return WithFailureInfo(InvalidArgument(where, "ranks ", a.source, " and ", b.source, " both call ", ToString(a),
                                           ", but an earlier operation of the group was not the same on them; all members must "
                                           "call the same operations with the same arguments in the same order"), info);
  }
  return WithFailureInfo(InvalidArgument(where, "rank ", a.source, " calls ", ToString(a), " and rank ", b.source, " calls ", ToString(b),
                                         "; all members must call the same operations with the same arguments in the same order"), info);
}

}  // namespace moe
