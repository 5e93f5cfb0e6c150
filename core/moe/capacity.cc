#include "core/moe/capacity.h"

#include <algorithm>
#include <cmath>

namespace moe {
namespace {

// One route, as all ranks see it.
struct Route {
  double score;
  int64_t expert;
  int64_t global_token;   // offset of the rank + token
  int64_t index;          // in this rank's ids, -1: another rank's
};

int64_t Capacity(const config::GateConfig& c, int64_t experts, int64_t top_k, int64_t tokens) {
  // The small slack keeps ceil() from seeing 3.0000000000000004.
  const double even = static_cast<double>(tokens) * static_cast<double>(top_k) / static_cast<double>(experts) * c.capacity_factor();
  const int64_t n = static_cast<int64_t>(std::ceil(even - 1e-9 * std::max(1.0, even)));
  return std::min(std::max(n, c.min_capacity()), tokens);
}

// Keeps the first C by position. `before[k * E + e]` = routes to e at choice k on lower ranks, `all` = on all ranks.
void DropByPosition(int64_t capacity, int64_t experts, int64_t top_k, const std::vector<int64_t>& before, const std::vector<int64_t>& all, std::vector<int32_t>* ids) {
  const int64_t tokens = static_cast<int64_t>(ids->size()) / top_k;
  std::vector<int64_t> earlier_choices(experts, 0);
  for (int64_t k = 0; k < top_k; ++k) {
    std::vector<int64_t> place(experts);
    for (int64_t e = 0; e < experts; ++e) place[e] = earlier_choices[e] + before[k * experts + e];
    for (int64_t t = 0; t < tokens; ++t) {
      int32_t& id = (*ids)[t * top_k + k];
      if (id >= 0 && place[id]++ >= capacity) id = -1;
    }
    for (int64_t e = 0; e < experts; ++e) earlier_choices[e] += all[k * experts + e];
  }
}

void DropByScore(int64_t capacity, int64_t experts, std::vector<Route> routes, std::vector<int32_t>* ids) {
  std::sort(routes.begin(), routes.end(), [](const Route& a, const Route& b) {
    if (a.expert != b.expert) return a.expert < b.expert;
    if (a.score != b.score) return a.score > b.score;
    return a.global_token < b.global_token;
  });
  std::vector<int64_t> taken(experts, 0);
  for (const Route& r : routes)
    if (taken[r.expert]++ >= capacity && r.index >= 0) (*ids)[r.index] = -1;
}

// All ranks' routes: each rank's list is padded to the longest.
absl::StatusOr<std::vector<Route>> GatherRoutes(std::vector<Route> mine, int64_t tokens, Communicator* batch) {
  const int64_t n = batch->size();
  std::vector<int64_t> sizes(2 * n);
  const int64_t my_sizes[2] = {static_cast<int64_t>(mine.size()), tokens};
  MOE_RETURN_IF_ERROR(AllGather(batch->For("capacity"), my_sizes, sizeof(my_sizes), sizes.data()));
  int64_t longest = 0, first_token = 0;
  for (int64_t r = 0; r < n; ++r) {
    longest = std::max(longest, sizes[2 * r]);
    if (r < batch->rank()) first_token += sizes[2 * r + 1];
  }
  for (Route& r : mine) r.global_token += first_token;
  const std::vector<Route> kept = mine;
  mine.resize(longest);
  std::vector<Route> all(longest * n);
  MOE_RETURN_IF_ERROR(AllGather(batch->For("capacity"), mine.data(), longest * static_cast<int64_t>(sizeof(Route)), all.data()));
  std::vector<Route> out;
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t i = 0; i < sizes[2 * r]; ++i) {
      Route route = all[r * longest + i];
      if (r != batch->rank()) route.index = -1;
      out.push_back(route);
    }
  }
  return out;
}

}  // namespace

absl::StatusOr<CapacityResult> ApplyCapacity(const config::GateConfig& config, int64_t experts, int64_t top_k, int64_t valid_tokens,
                                             absl::Span<const double> scores, Communicator* batch, std::vector<int32_t>* ids) {
  const bool alone = batch == nullptr || batch->size() == 1;
  const bool global = config.capacity_scope() == "global" && !alone;
  const int64_t tokens = static_cast<int64_t>(ids->size()) / top_k;
  CapacityResult result;
  if (global) {
    int64_t total = valid_tokens;
    MOE_RETURN_IF_ERROR(AllReduce(batch->For("capacity"), &total, 1, DType::kI64, ReduceOp::kSum));
    result.capacity = Capacity(config, experts, top_k, total);
  } else {
    result.capacity = Capacity(config, experts, top_k, valid_tokens);
    // The largest rank decides, so that all ranks agree on the shape of a slot table.
    if (!alone) MOE_RETURN_IF_ERROR(AllReduce(batch->For("capacity"), &result.capacity, 1, DType::kI64, ReduceOp::kMax));
  }
  const auto routed = [&] { return std::count_if(ids->begin(), ids->end(), [](int32_t id) { return id >= 0; }); };
  const int64_t before_drop = routed();

  if (config.drop_policy() == "position") {
    std::vector<int64_t> mine(top_k * experts, 0);
    for (size_t i = 0; i < ids->size(); ++i)
      if ((*ids)[i] >= 0) ++mine[static_cast<int64_t>(i) % top_k * experts + (*ids)[i]];
    std::vector<int64_t> before(mine.size(), 0), all = mine;
    if (global) {
      std::vector<int64_t> every(mine.size() * batch->size());
      MOE_RETURN_IF_ERROR(AllGather(batch->For("capacity"), mine.data(), static_cast<int64_t>(mine.size() * sizeof(int64_t)), every.data()));
      std::fill(all.begin(), all.end(), 0);
      for (int r = 0; r < batch->size(); ++r) {
        for (size_t i = 0; i < mine.size(); ++i) {
          all[i] += every[r * mine.size() + i];
          if (r < batch->rank()) before[i] += every[r * mine.size() + i];
        }
      }
    }
    DropByPosition(result.capacity, experts, top_k, before, all, ids);
  } else {
    std::vector<Route> routes;
    for (size_t i = 0; i < ids->size(); ++i)
      if ((*ids)[i] >= 0) routes.push_back({scores[i], (*ids)[i], static_cast<int64_t>(i) / top_k, static_cast<int64_t>(i)});
    if (global) {
      MOE_ASSIGN_OR_RETURN(routes, GatherRoutes(std::move(routes), tokens, batch));
    }
    DropByScore(result.capacity, experts, std::move(routes), ids);
  }
  result.dropped = before_drop - routed();
  return result;
}

}  // namespace moe
