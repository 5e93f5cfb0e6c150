// The ranks that a model is spread over, as one of them sees them.
#ifndef MOE_CORE_MODEL_PARALLEL_H_
#define MOE_CORE_MODEL_PARALLEL_H_

#include <array>

#include "core/comm/communicator.h"
#include "core/topology/mesh.h"

namespace moe {

// Communicators of this rank's groups, by kind; null, or a group of one: this rank alone. They outlive whoever has this.
class Parallel {
 public:
  void Set(GroupKind kind, Communicator* group) { group_[static_cast<size_t>(kind)] = group; }
  // Null where nobody else is in the group.
  Communicator* group(GroupKind kind) const {
    Communicator* c = group_[static_cast<size_t>(kind)];
    return c != nullptr && c->size() > 1 ? c : nullptr;
  }
  // Where in the model the coming operations are; "": nowhere.
  void At(absl::string_view place) const {
    for (Communicator* c : group_)
      if (c != nullptr) c->At(place);
  }
  int64_t size(GroupKind kind) const { return group(kind) ? group(kind)->size() : 1; }
  int64_t index(GroupKind kind) const { return group(kind) ? group(kind)->rank() : 0; }

  int64_t tp() const { return size(GroupKind::kTp); }
  int64_t tp_rank() const { return index(GroupKind::kTp); }
  int64_t cp() const { return size(GroupKind::kCp); }
  int64_t cp_rank() const { return index(GroupKind::kCp); }
  int64_t stages() const { return size(GroupKind::kPp); }
  int64_t stage() const { return index(GroupKind::kPp); }

 private:
  std::array<Communicator*, kGroupKinds.size()> group_{};
};

// Share `index` of n things cut into `parts` nearly equal runs.
inline int64_t ShareBegin(int64_t n, int64_t parts, int64_t index) { return n * index / parts; }
inline int64_t ShareSize(int64_t n, int64_t parts, int64_t index) { return ShareBegin(n, parts, index + 1) - ShareBegin(n, parts, index); }

}  // namespace moe
#endif  // MOE_CORE_MODEL_PARALLEL_H_
