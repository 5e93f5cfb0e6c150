// Which layers a virtual stage has, and how a rank's share of the batch is cut.
#include <algorithm>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/plan/schedule.h"

namespace moe {
namespace {

// Multiply-adds per token of a layer's forward. Attention over a causal sequence: (S + 1) / 2 keys per query on average.
double LayerCost(const config::Config& c, int64_t layer) {
  const config::ModelConfig& m = c.model();
  const double D = m.d_model(), H = m.num_heads(), keys = (c.train().seq_len() + 1) / 2.0;
  double attention = 0;
  if (m.attention() == "mla") {
    const double qk = m.qk_nope_head_dim() + m.qk_rope_head_dim(), v = m.v_head_dim(), q_rank = m.q_lora_rank(), kv_rank = m.kv_lora_rank();
    attention = (q_rank > 0 ? D * q_rank + q_rank * H * qk : D * H * qk) + D * (kv_rank + m.qk_rope_head_dim()) + kv_rank * H * (m.qk_nope_head_dim() + v) + H * v * D + H * keys * (qk + v);
  } else {
    const double head = m.head_dim() > 0 ? m.head_dim() : m.d_model() / m.num_heads();
    attention = 2 * D * H * head + 2 * D * m.num_kv_heads() * head + 2 * H * head * keys;
  }
  const double matrices = c.expert().kind() == "swiglu" ? 3 : 2;
  if (layer < m.num_dense_layers()) return attention + matrices * D * static_cast<double>(m.d_hidden_dense() > 0 ? m.d_hidden_dense() : m.d_hidden() * m.top_k());
  return attention + D * m.num_global_experts() + matrices * D * m.d_hidden() * (m.top_k() + m.num_shared_experts());
}

// Sizes of `parts` contiguous, not empty parts of `cost`: the largest part is as small as can be, and among those splits the sum
// of squares is.
std::vector<int64_t> Balance(const std::vector<double>& cost, int64_t parts) {
  const int64_t n = static_cast<int64_t>(cost.size());
  std::vector<double> until(n + 1, 0);
  for (int64_t i = 0; i < n; ++i) until[i + 1] = until[i] + cost[i];
  // best[p][i]: of the first i in p parts. First the largest part, then with that as the limit the sum of squares.
  const auto solve = [&](double limit, bool squares, std::vector<std::vector<int64_t>>* from) {
    constexpr double kNone = std::numeric_limits<double>::infinity();
    std::vector<double> best(n + 1, kNone), next;
    best[0] = 0;
    for (int64_t p = 1; p <= parts; ++p) {
      next.assign(n + 1, kNone);
      for (int64_t i = p; i <= n - (parts - p); ++i) {
        for (int64_t j = i - 1; j >= p - 1; --j) {
          const double part = until[i] - until[j];
          if (part > limit || (!squares && part >= next[i])) break;   // parts only grow
          const double value = squares ? best[j] + part * part : std::max(best[j], part);
          if (value < next[i]) {
            next[i] = value;
            (*from)[p][i] = j;
          }
        }
      }
      best.swap(next);
    }
    return best[n];
  };
  std::vector<std::vector<int64_t>> from(parts + 1, std::vector<int64_t>(n + 1, 0));
  const double largest = solve(std::numeric_limits<double>::infinity(), false, &from);
  solve(largest * (1 + 1e-12), true, &from);
  std::vector<int64_t> sizes(parts);
  for (int64_t p = parts, i = n; p > 0; --p) {
    sizes[p - 1] = i - from[p][i];
    i = from[p][i];
  }
  return sizes;
}

absl::StatusOr<std::vector<int64_t>> ReadStageLayers(const config::Config& c, int64_t virtual_stages, const std::string& of) {
  const std::string& text = c.pipeline().stage_layers();
  std::vector<int64_t> sizes;
  int64_t sum = 0;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    int64_t n = 0;
    if (!absl::SimpleAtoi(part, &n) || n < 0 || n > c.model().num_layers())
      return InvalidArgument("pipeline.stage_layers is '", text, "': '", std::string(part), "' is not a number of layers (0 to model.num_layers, which is ", c.model().num_layers(), "); write it as \"3,5,4,4\"");
    sizes.push_back(n);
    sum += n;
  }
  if (static_cast<int64_t>(sizes.size()) != virtual_stages)
    return InvalidArgument("pipeline.stage_layers is '", text, "', which names ", sizes.size(), " virtual stages; there are ", virtual_stages, " (", of, "): give as many numbers");
  if (sum != c.model().num_layers())
    return InvalidArgument("pipeline.stage_layers is '", text, "', whose sum is ", sum, "; it must be model.num_layers, which is ", c.model().num_layers());
  return sizes;
}

}  // namespace

int64_t VirtualStages(const config::Config& c, int64_t stages) {
  if (c.pipeline().virtual_stages() > 0) return c.pipeline().virtual_stages();
  return c.pipeline().kind() == "interleaved" && stages > 1 ? 2 : 1;
}

absl::StatusOr<std::vector<Chunk>> PlaceLayers(const config::Config& c, int64_t stages) {
  const int64_t v = VirtualStages(c, stages), V = stages * v, L = c.model().num_layers();
  const std::string of = v == 1 ? absl::StrCat("mesh.pp ", stages) : absl::StrCat("mesh.pp ", stages, " x pipeline.virtual_stages ", v);
  std::vector<int64_t> sizes;
  if (!c.pipeline().stage_layers().empty()) {
    MOE_ASSIGN_OR_RETURN(sizes, ReadStageLayers(c, V, of));
  } else if (V > L) {
    const std::string fewer = v > 1 && L >= stages ? absl::StrCat("pipeline.virtual_stages=", L / stages) : absl::StrCat("mesh.pp=", std::max<int64_t>(1, L / v));
    return InvalidArgument(of, " makes ", V, " virtual stages, more than model.num_layers, which is ", L, "; use at most ", fewer, ", or say in pipeline.stage_layers which have no layer");
  } else if (c.pipeline().balance() == "layers") {
    for (int64_t i = 0; i < V; ++i) sizes.push_back(L / V + (i < L % V ? 1 : 0));
  } else {
    std::vector<double> cost(L);
    for (int64_t l = 0; l < L; ++l) cost[l] = LayerCost(c, l);
    cost.back() += static_cast<double>(c.model().d_model()) * static_cast<double>(c.model().vocab_size());   // the head
    sizes = Balance(cost, V);
  }
  std::vector<Chunk> chunks;
  int64_t first = 0;
  for (int64_t i = 0; i < V; ++i) {
    chunks.push_back({i % stages, first, sizes[i], i == 0, i == V - 1});
    first += sizes[i];
  }
  return chunks;
}

int64_t MicroBatchSize(const config::Config& c, int64_t stages, int64_t share) {
  if (c.train().micro_batch() > 0) return c.train().micro_batch();
  if (stages <= 1) return std::max<int64_t>(1, share);
  const int64_t size = std::max<int64_t>(1, share / (4 * stages));
  if (c.pipeline().kind() != "interleaved") return size;
  // Rounds of micro-batches must be full: the largest size not above that makes a multiple of the stages.
  for (int64_t s = size; s > 0; --s)
    if ((share + s - 1) / s % stages == 0) return s;
  return size;
}

}  // namespace moe
