#include "core/plan/report/costs.h"

#include <algorithm>
#include <cmath>

namespace moe {
namespace {

void Append(const OpCost& from, double times, OpCost* to) {
  to->compute += times * from.compute;
  for (Traffic t : from.traffic) {
    t.bytes *= times;
    t.seconds *= times;
    to->traffic.push_back(t);
  }
}

}  // namespace

StepCosts::StepCosts(const config::Config& c, const Mesh& mesh, const std::vector<Chunk>& chunks, int64_t micro_batches, const Machine& machine, double imbalance)
    : c_(c), mesh_(mesh), machine_(machine), imbalance_(mesh.size(Axis::kEp) > 1 ? imbalance : 1), element_(static_cast<double>(ElementBytes(c.model()))) {
  const double tp = static_cast<double>(mesh.size(Axis::kTp)), cp = static_cast<double>(mesh.size(Axis::kCp)), dp = static_cast<double>(mesh.size(Axis::kDp));
  // The micro-batches of a data-parallel rank on average: the last one may be smaller.
  shape_.sequences = std::ceil(static_cast<double>(c.train().global_batch()) / dp) / static_cast<double>(micro_batches);
  shape_.seq_len = static_cast<double>(c.train().seq_len());
  shape_.group_tokens = shape_.sequences * shape_.seq_len / cp;
  shape_.rank_tokens = shape_.group_tokens / tp;
  for (const Chunk& chunk : chunks) chunks_.push_back(MakeChunk(chunk));
  const double bytes = shape_.rank_tokens * static_cast<double>(c.model().d_model()) * element_;
  exchange_.traffic.push_back({GroupKind::kPp, "stage boundary", bytes, machine.latency_us * 1e-6 + bytes / (machine.bandwidth_gbs * 1e9)});
  MakeStepOps(chunks);
}

double StepCosts::Product(double flops, double operand_bytes) const { return std::max(flops / (machine_.gflops * 1e9), Memory(operand_bytes)); }
double StepCosts::Memory(double bytes) const { return bytes / (machine_.memory_gbs * 1e9); }

// Every member sends to every other directly. Groups of one cost nothing.
Traffic StepCosts::Collective(GroupKind group, const char* name, double bytes, int phases) const {
  const double n = static_cast<double>(mesh_.GroupSize(group, 0));
  if (n <= 1) return {group, name, 0, 0};
  const double sent = phases == 1 ? bytes : bytes * (n - 1) / n;
  return {group, name, sent, phases * (machine_.latency_us + (n - 2) * machine_.message_us) * 1e-6 + sent / (machine_.bandwidth_gbs * 1e9)};
}

void StepCosts::AddLayer(bool moe_layer, double count, ChunkCosts* out) const {
  const config::ModelConfig& m = c_.model();
  const LayerParameters p = CountLayer(c_, moe_layer);
  const auto size = [&](Axis a) { return static_cast<double>(mesh_.size(a)); };
  const double tp = size(Axis::kTp), cp = size(Axis::kCp), ep = size(Axis::kEp), etp = size(Axis::kEtp);
  const double e = element_, D = static_cast<double>(m.d_model()), G = shape_.group_tokens, R = shape_.rank_tokens;
  OpCost forward, input, weight;

  // A weight matrix (all of `params` together) with `rows` rows of input.
  const auto matrices = [&](double params, double rows, double width) {
    if (params <= 0) return;
    const double flops = 2 * params * rows, bytes = (params + rows * width) * e;
    forward.compute += Product(flops, bytes);
    input.compute += Product(flops, bytes);
    weight.compute += Product(flops, bytes + params * e);
  };
  const auto memory = [&](double elements) {
    forward.compute += Memory(elements * e);
    input.compute += Memory(2 * elements * e);
  };
  const auto both = [&](GroupKind group, const char* name, double bytes) {
    forward.traffic.push_back(Collective(group, name, bytes));
    input.traffic.push_back(Collective(group, name, bytes));
  };
  const double to_peers = (tp - 1) * R * D * e;

  // Norms, residual.
  memory(8 * R * D);
  const double q = static_cast<double>(QueryWidth(m)) / tp, v = static_cast<double>(ValueWidth(m)) / tp, kv = static_cast<double>(KeyValueWidth(m)) / (m.attention() == "mla" ? 1 : tp);
  both(GroupKind::kTp, "attention gather", to_peers);
  matrices(static_cast<double>(p.attention) / tp, G, 2 * D + q + kv + v);
  matrices(static_cast<double>(p.latent), R, D);
  memory(2 * G * (q + kv));
  // Causal: half of the keys on average.
  const double scores = shape_.sequences * shape_.seq_len * (shape_.seq_len + 1) / 2 / cp * 2 * (q + v);
  forward.compute += Product(scores, G * (q + kv + v) * e);
  input.compute += Product(2.5 * scores, 2 * G * (q + kv + v) * e);
  forward.traffic.push_back(Collective(GroupKind::kCp, "attention kv", (cp - 1) * G * kv * e));
  input.traffic.push_back(Collective(GroupKind::kCp, "attention dkv reduce", (cp - 1) * G * kv * e));
  both(GroupKind::kTp, "attention reduce", to_peers);

  if (p.dense_ffn > 0) {   // a dense layer's, or shared experts
    const double F = static_cast<double>(moe_layer ? m.num_shared_experts() * m.d_hidden() : DenseWidth(m)) / tp;
    both(GroupKind::kTp, "ffn gather", to_peers);
    matrices(static_cast<double>(p.dense_ffn) / tp, G, 2 * D + 3 * F);
    memory(3 * G * F);
    both(GroupKind::kTp, "ffn reduce", to_peers);
  }
  if (moe_layer) {
    const double E = static_cast<double>(m.num_global_experts()), F = static_cast<double>(m.d_hidden()) / etp, routes = R * static_cast<double>(m.top_k()), rows = routes * etp * imbalance_;
    matrices(static_cast<double>(p.router), R, D + E);
    memory(4 * R * E + 8 * routes * D);
    const double dispatched = routes * D * e * (ep - 1) / ep * imbalance_, gathered = (etp - 1) * routes * D * e * imbalance_;
    if (c_.gate().has_capacity_factor()) {
      const double stage = static_cast<double>(mesh_.GroupSize(GroupKind::kStage, 0));
      forward.traffic.push_back(Collective(GroupKind::kStage, "capacity", (stage - 1) * E * static_cast<double>(m.top_k()) * 8));
    }
    forward.traffic.push_back(Collective(GroupKind::kEp, "counts", (ep - 1) * E * 8));
    both(GroupKind::kEp, "dispatch", dispatched);
    forward.traffic.push_back(Collective(GroupKind::kEtp, "etp counts", (etp - 1) * E / ep * 8));
    both(GroupKind::kEtp, "etp gather", gathered);
    const double experts = static_cast<double>(ExpertsPerRank(c_, mesh_));
    // Each row meets one expert; the weights of all experts are read.
    const double one = static_cast<double>(p.one_expert) / etp, flops = 2 * one * rows, bytes = (experts * one + rows * (2 * D + 3 * F)) * e;
    forward.compute += Product(flops, bytes);
    input.compute += Product(flops, bytes);
    weight.compute += Product(flops, bytes + experts * one * e);
    memory(3 * rows * F);
    both(GroupKind::kEtp, "etp reduce", gathered);
    both(GroupKind::kEp, "combine", dispatched);
  }
  Append(forward, count, &out->forward);
  Append(input, count, &out->backward_input);
  Append(weight, count, &out->backward_weight);
}

StepCosts::ChunkCosts StepCosts::MakeChunk(const Chunk& chunk) const {
  const config::ModelConfig& m = c_.model();
  ChunkCosts out;
  const double tp = static_cast<double>(mesh_.size(Axis::kTp)), D = static_cast<double>(m.d_model()), e = element_;
  const double to_peers = (tp - 1) * shape_.rank_tokens * D * e;
  if (chunk.embedding) {
    out.forward.compute += Memory(2 * shape_.group_tokens * D * e);
    out.forward.traffic.push_back(Collective(GroupKind::kTp, "embedding reduce", to_peers));
    out.backward_input.compute += Memory(3 * shape_.group_tokens * D * e);
    out.backward_input.traffic.push_back(Collective(GroupKind::kTp, "embedding gather", to_peers));
  }
  const int64_t dense = std::clamp<int64_t>(m.num_dense_layers() - chunk.first_layer, 0, chunk.num_layers);
  if (dense > 0) AddLayer(false, static_cast<double>(dense), &out);
  if (chunk.num_layers > dense) AddLayer(true, static_cast<double>(chunk.num_layers - dense), &out);
  out.route = out.forward;
  if (chunk.head) {
    // Loss and its gradients together, in blocks of rows, so that logits are never kept.
    const double vocabulary = static_cast<double>(m.vocab_size()) / tp, rows = shape_.group_tokens;
    const double flops = 2 * rows * D * vocabulary, bytes = (vocabulary * D + rows * (D + vocabulary)) * e;
    out.forward.compute += 3 * Product(flops, bytes) + Memory(3 * rows * vocabulary * e + 4 * shape_.rank_tokens * D * e);
    out.forward.traffic.push_back(Collective(GroupKind::kTp, "head gather", to_peers));
    out.forward.traffic.push_back(Collective(GroupKind::kTp, "head softmax", (tp - 1) * rows * 3 * 8));
    out.forward.traffic.push_back(Collective(GroupKind::kTp, "head reduce", to_peers));
  }
  Append(out.backward_input, 1, &out.backward);
  Append(out.backward_weight, 1, &out.backward);
  return out;
}

void StepCosts::MakeStepOps(const std::vector<Chunk>& chunks) {
  const config::ModelConfig& m = c_.model();
  const double e = element_, vocabulary = static_cast<double>(m.vocab_size()) / static_cast<double>(mesh_.size(Axis::kTp)) * static_cast<double>(m.d_model());
  const double routing = static_cast<double>((m.num_layers() - m.num_dense_layers()) * m.num_global_experts());
  const double states = c_.optimizer().kind() == "adamw" ? 2 : c_.optimizer().momentum() > 0 ? 1 : 0;
  step_ops_.resize(mesh_.size(Axis::kPp));
  for (int64_t stage = 0; stage < mesh_.size(Axis::kPp); ++stage) {
    std::vector<Chunk> mine;
    bool end = false;
    for (const Chunk& chunk : chunks) {
      if (chunk.stage != stage) continue;
      mine.push_back(chunk);
      end = end || chunk.embedding || chunk.head;
    }
    const ParameterCounts p = CountRank(c_, mesh_, mine);
    std::vector<OpCost>& ops = step_ops_[stage];
    ops.resize(static_cast<size_t>(OpKind::kUpdate) + 1);
    const auto of = [&](OpKind kind) -> OpCost& { return ops[static_cast<size_t>(kind)]; };
    const double labels = shape_.sequences * shape_.seq_len * 8;
    of(OpKind::kBegin).traffic = {Collective(GroupKind::kReplica, "batch", labels), Collective(GroupKind::kDp, "batch sizes", 16.0 * static_cast<double>(mesh_.size(Axis::kDp) - 1))};
    of(OpKind::kReduceRouting).traffic = {AllReduce(GroupKind::kStage, "routing counts", routing * 16), AllReduce(GroupKind::kPp, "routing counts", routing * 16)};
    of(OpKind::kReduceDense).traffic = {AllReduce(GroupKind::kDpCp, "dense gradients", static_cast<double>(p.dense) * e)};
    of(OpKind::kReduceReplicated).traffic = {AllReduce(GroupKind::kStage, "replicated gradients", static_cast<double>(p.replicated) * e)};
    of(OpKind::kReduceExpert).traffic = {AllReduce(GroupKind::kEdp, "expert gradients", static_cast<double>(p.expert) * e)};
    if (end) of(OpKind::kReduceTied).traffic = {AllReduce(GroupKind::kEnds, "tied gradients", vocabulary * e)};
    of(OpKind::kReduceMetrics).traffic = {AllReduce(GroupKind::kDpCp, "metrics", 64), AllReduce(GroupKind::kPp, "metrics", 64)};
    of(OpKind::kReduceNorm).compute = Memory(static_cast<double>(p.total()) * e);
    of(OpKind::kReduceNorm).traffic = {AllReduce(GroupKind::kStage, "norm", 8), AllReduce(GroupKind::kPp, "norm", 8)};
    // Weight and states are read and written, the gradient is read, and set to zero before the next step.
    of(OpKind::kUpdate).compute = Memory(static_cast<double>(p.total()) * e * (4 + 2 * states));
  }
}

const OpCost& StepCosts::Of(int64_t stage, const Op& op) const {
  switch (op.kind) {
    case OpKind::kForward: return chunks_[op.chunk].forward;
    case OpKind::kRoute: return chunks_[op.chunk].route;
    case OpKind::kBackward: return chunks_[op.chunk].backward;
    case OpKind::kBackwardInput: return chunks_[op.chunk].backward_input;
    case OpKind::kBackwardWeight: return chunks_[op.chunk].backward_weight;
    case OpKind::kExchange: return exchange_;
    default: return step_ops_[stage][static_cast<size_t>(op.kind)];
  }
}

// What the layers keep: their inputs, normalised inputs, attention's projections and outputs, the experts' rows and activations.
double StepCosts::SavedBytes(const Chunk& chunk) const {
  const config::ModelConfig& m = c_.model();
  const auto size = [&](Axis a) { return static_cast<double>(mesh_.size(a)); };
  const double D = static_cast<double>(m.d_model()), R = shape_.rank_tokens, G = shape_.group_tokens, tp = size(Axis::kTp), etp = size(Axis::kEtp), gated = c_.expert().kind() == "swiglu" ? 3 : 2;
  const double attention = 5 * R * D + G * static_cast<double>(QueryWidth(m) + KeyValueWidth(m) + ValueWidth(m)) / tp + (tp > 1 ? 2 * G * D : 0);
  double sum = 0;
  for (int64_t l = chunk.first_layer; l < chunk.first_layer + chunk.num_layers; ++l) {
    const bool moe_layer = IsMoeLayer(c_, l);
    const double width = static_cast<double>(moe_layer ? m.num_shared_experts() * m.d_hidden() : DenseWidth(m));
    sum += attention + gated * G * width / tp;
    if (moe_layer) {
      const double rows = R * static_cast<double>(m.top_k());
      sum += rows * D * (1 + etp) + rows * etp * gated * static_cast<double>(m.d_hidden()) / etp + 2 * R * static_cast<double>(m.num_global_experts());
    }
  }
  if (chunk.head) sum += 2 * R * D;
  return sum * element_;
}

}  // namespace moe
