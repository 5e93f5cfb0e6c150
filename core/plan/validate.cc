#include "core/plan/validate.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/config/config_io.h"
#include "core/plan/step_shape.h"
#include "core/topology/mesh.h"
#include "core/topology/nearest.h"

namespace moe {
namespace {

bool IsLatent(const config::ModelConfig& m) { return m.attention() == "mla"; }

using Problems = std::vector<std::string>;

template <typename... A>
void Add(Problems* p, const A&... a) { p->push_back(absl::StrCat(a...)); }

// Heads are whole: every tensor-parallel rank has as many key/value heads. Latent attention (mla) has none of its own.
void CheckTensorParallel(const config::ModelConfig& m, const Mesh& mesh, Problems* p) {
  const int64_t tp = mesh.size(Axis::kTp), heads = IsLatent(m) ? m.num_heads() : m.num_kv_heads();
  if (heads % tp == 0) return;
  const int64_t stage_ranks = mesh.world_size() / mesh.size(Axis::kPp);
  Add(p, "mesh.tp is ", tp, ", ", tp > heads ? "more than" : "no divisor of", IsLatent(m) ? " model.num_heads, which is " : " model.num_kv_heads, which is ", heads,
      ": heads are not cut; nearest that works: mesh.tp=", NearestDivisors(std::gcd(heads, stage_ranks), tp));
}

// A sequence is cut into 2 cp equal chunks: rank i has chunks i and 2 cp - 1 - i, the same causal work for all.
void CheckContextParallel(const config::Config& c, const Mesh& mesh, Problems* p) {
  const int64_t cp = mesh.size(Axis::kCp), seq = c.train().seq_len();
  if (cp <= 1) return;
  if (seq % (2 * cp) != 0)
    Add(p, "train.seq_len is ", seq, ", not divisible by 2 * mesh.cp, which is ", 2 * cp, ": each rank has two chunks of every sequence; nearest that works: train.seq_len=", NearestMultiples(2 * cp, seq),
        seq % 2 == 0 ? absl::StrCat(", or mesh.cp=", NearestDivisors(seq / 2, cp)) : std::string(", or mesh.cp=1"));
  if (c.gate().has_capacity_factor() && c.gate().capacity_scope() == "global" && c.gate().drop_policy() == "position")
    Add(p, "gate.drop_policy is position with gate.capacity_scope=global and mesh.cp=", cp,
        ": ranks hold chunks of a sequence out of order, so no rank knows which tokens come later; use gate.drop_policy=probability, gate.capacity_scope=rank or mesh.cp=1");
}

void CheckStages(const config::Config& c, const Mesh& mesh, Problems* p) {
  const config::PipelineConfig& pipeline = c.pipeline();
  const int64_t stages = mesh.size(Axis::kPp), v = VirtualStages(c, stages), layers = c.model().num_layers();
  if (pipeline.virtual_stages() > 1 && pipeline.kind() != "interleaved" && pipeline.kind() != "gpipe")
    Add(p, "pipeline.virtual_stages is ", pipeline.virtual_stages(), " with pipeline.kind=", pipeline.kind(), ", which has one per rank; use pipeline.virtual_stages=1 or pipeline.kind=interleaved");
  if (!pipeline.stage_layers().empty()) {
    const absl::Status placed = PlaceLayers(c, stages).status();   // length and sum
    if (!placed.ok()) Add(p, placed.message());
  } else if (stages > layers) {
    Add(p, "mesh.pp is ", stages, ", more stages than layers: model.num_layers is ", layers, "; nearest that works: mesh.pp=", NearestDivisors(std::gcd(mesh.world_size(), layers), stages),
        ", or give some stages none with pipeline.stage_layers");
  } else if (stages * v > layers) {
    Add(p, "pipeline.virtual_stages is ", v, " on mesh.pp=", stages, " stages, in all ", stages * v, ", more than model.num_layers, which is ", layers, "; nearest that works: pipeline.virtual_stages=", layers / stages);
  }
  if (pipeline.kind() == "interleaved" && stages > 1) {
    const int64_t micro = NumMicroBatches(c, stages, mesh.size(Axis::kDp)), share = (c.train().global_batch() + mesh.size(Axis::kDp) - 1) / mesh.size(Axis::kDp);
    if (micro % stages != 0) {
      const int64_t want = std::max<int64_t>(1, micro / stages) * stages;
      Add(p, "train.micro_batch is ", MicroBatchSize(c, stages, share), ", which makes ", micro, " micro-batches of the ", share, " sequences of a data-parallel rank: pipeline.kind=interleaved takes them in rounds of mesh.pp, which is ",
          stages, "; nearest that works: ", want <= share && share % want == 0 ? absl::StrCat("train.micro_batch=", share / want) : absl::StrCat("train.global_batch=", NearestMultiples(stages * mesh.size(Axis::kDp), c.train().global_batch()), " with train.micro_batch=1"),
          ", or pipeline.kind=1f1b");
    }
  }
}

void CheckExpertTensorParallel(const config::ModelConfig& m, const Mesh& mesh, Problems* p) {
  const int64_t etp = mesh.size(Axis::kEtp), stage_ranks = mesh.world_size() / mesh.size(Axis::kPp);
  if (m.d_hidden() % etp == 0) return;
  Add(p, "mesh.etp is ", etp, ", no divisor of model.d_hidden, which is ", m.d_hidden(), ": every rank holds an equal part of each expert's inner width; nearest that works: mesh.etp=",
      NearestDivisors(std::gcd(m.d_hidden(), stage_ranks), etp), ", or model.d_hidden=", NearestMultiples(etp, m.d_hidden()));
}

void CheckLatentAttention(const config::ModelConfig& m, Problems* p) {
  if (!IsLatent(m)) return;
  const std::pair<const char*, int64_t> sizes[] = {{"kv_lora_rank", m.kv_lora_rank()}, {"qk_nope_head_dim", m.qk_nope_head_dim()}, {"v_head_dim", m.v_head_dim()}};
  for (const auto& [field, value] : sizes)
    if (value < 1) Add(p, "model.", field, " is ", value, ", must be at least 1 with model.attention=mla");
}

}  // namespace

absl::Status ValidateLayout(const config::Config& c) {
  MOE_RETURN_IF_ERROR(CheckConfigRanges(c));   // what follows divides by fields
  MOE_ASSIGN_OR_RETURN(const Mesh mesh, MeshFromConfig(c.ranks(), c.mesh(), c.model().num_global_experts()));
  Problems p;
  CheckTensorParallel(c.model(), mesh, &p);
  CheckContextParallel(c, mesh, &p);
  CheckStages(c, mesh, &p);
  CheckExpertTensorParallel(c.model(), mesh, &p);
  CheckLatentAttention(c.model(), &p);
  return p.empty() ? absl::OkStatus() : InvalidArgument(absl::StrJoin(p, "\n"));
}

std::vector<std::string> ConfigWarnings(const config::Config& c) {
  std::vector<std::string> out;
  const auto mesh = MeshFromConfig(c.ranks(), c.mesh(), c.model().num_global_experts());
  if (!mesh.ok()) return out;
  const int64_t stages = mesh->size(Axis::kPp), dp = mesh->size(Axis::kDp), v = VirtualStages(c, stages), micro = NumMicroBatches(c, stages, dp);
  if (stages > 1 && micro < stages) {
    // Forwards and backwards of M micro-batches behind a fill and a drain of P - 1.
    const double fill = static_cast<double>(stages - 1) / static_cast<double>(v), idle = fill / (fill + static_cast<double>(micro));
    out.push_back(absl::StrCat("a step has ", micro, micro == 1 ? " micro-batch" : " micro-batches", ", fewer than the ", stages, " pipeline stages (mesh.pp): stages idle for ", absl::StrFormat("%.0f%%", 100 * idle),
                               " of the step. Raise train.global_batch, lower train.micro_batch or lower mesh.pp"));
  }
  if (c.train().global_batch() < dp)
    out.push_back(absl::StrCat("train.global_batch is ", c.train().global_batch(), ", fewer sequences than mesh.dp, which is ", dp, ": ", dp - c.train().global_batch(), " data-parallel ranks compute nothing"));
  if (stages == 1 && (c.pipeline().virtual_stages() > 1 || !c.pipeline().stage_layers().empty()))
    out.push_back("mesh.pp is 1, so there is one stage: pipeline.virtual_stages and pipeline.stage_layers only cut it into units that run one after the other");
  return out;
}

absl::Status CheckTrainable(const config::Config& c) {
  Problems p;
  if (IsLatent(c.model())) Add(&p, "model.attention is mla: `moe plan` lays it out, training does not compute it yet; use model.attention=gqa");
  if (c.model().num_shared_experts() > 0)
    Add(&p, "model.num_shared_experts is ", c.model().num_shared_experts(), ": `moe plan` lays them out, training does not compute them yet; use model.num_shared_experts=0");
  return p.empty() ? absl::OkStatus() : absl::UnimplementedError(absl::StrJoin(p, "\n"));
}

}  // namespace moe
