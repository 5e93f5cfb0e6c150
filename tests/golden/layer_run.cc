#include "tests/golden/layer_run.h"

#include <cmath>
#include <numeric>
#include <thread>

#include "core/moe/moe_layer.h"
#include "experts/registry.h"
#include "transport/inproc/inproc.h"

namespace moe::testing {
namespace {

// Elements [begin, begin + n) of a whole tensor, row by row.
std::vector<double> Rows(const std::vector<double>& all, int64_t begin, int64_t n, int64_t width) {
  return std::vector<double>(all.begin() + begin * width, all.begin() + (begin + n) * width);
}

// What one rank contributes: its rows, and sums over ranks of what is not rows.
struct Part {
  LayerResult rows;
  std::map<std::string, std::vector<double>> sums;
};

class Rank {
 public:
  Rank(const LayerCase& c, const Machine& machine, int64_t first, int64_t tokens, const MoeGroups& groups)
      : c_(c), dtype_(machine.dtype), first_(first), tokens_(tokens), groups_(groups) {}

  absl::StatusOr<Part> Run(const Machine& machine, const Placement& placement) {
    MOE_ASSIGN_OR_RETURN(device_, machine.make());
    arena_ = std::make_unique<Arena>(device_.get());
    store_ = std::make_unique<ParamStore>(device_.get(), dtype_);
    MoeLayerSpec spec;
    spec.name = "moe";
    spec.d_model = c_.D;
    spec.d_hidden = c_.F;
    spec.num_global_experts = c_.E;
    spec.top_k = c_.K;
    spec.gate = c_.gate_config();
    spec.expert.set_kind(c_.expert_kind());
    const auto registry = MakeDefaultRegistry();
    MOE_ASSIGN_OR_RETURN(layer_, MoeLayer::Make(spec, placement, groups_, *registry));
    MOE_RETURN_IF_ERROR(layer_->DeclareParams(store_.get(), "moe"));
    MOE_RETURN_IF_ERROR(store_->Materialize(1));
    MOE_RETURN_IF_ERROR(SetParameters());

    std::vector<double> x = Mine("x_TD", c_.D), dy = Mine("dy_TD", c_.D);
    if (c_.has_padding()) {
      // What padding holds must not matter.
      std::vector<uint8_t> flags = c_.valid_T();
      flags = std::vector<uint8_t>(flags.begin() + first_, flags.begin() + first_ + tokens_);
      for (int64_t i = 0; i < tokens_ * c_.D; ++i)
        if (flags[i / c_.D] == 0) x[i] = dy[i] = NAN;
      MOE_ASSIGN_OR_RETURN(valid_, arena_->Make(DType::kU8, {tokens_}));
      MOE_RETURN_IF_ERROR(device_->CopyFromHost(valid_, flags.data()));
    }
    MOE_ASSIGN_OR_RETURN(x_, Tensor(x));
    MOE_RETURN_IF_ERROR(Call(spec.gate, "", dy));
    for (const auto& [kind, value] : c_.info["aux"].items()) MOE_RETURN_IF_ERROR(Call(spec.gate, kind, std::vector<double>(dy.size(), 0.0)));
    return std::move(part_);
  }

 private:
  std::vector<double> Mine(const std::string& name, int64_t width) const { return Rows(c_.real.at(name), first_, tokens_, width); }
  absl::StatusOr<TensorView> Tensor(const std::vector<double>& rows) {
    MOE_ASSIGN_OR_RETURN(TensorView t, arena_->Make(dtype_, {tokens_, c_.D}));
    MOE_RETURN_IF_ERROR(Put(device_.get(), rows, t));
    return t;
  }
  // The golden tensor that a piece is a part of, and where in it each of the piece's elements is.
  std::pair<std::string, std::vector<int64_t>> Golden(const ParamPiece& q) const {
    std::string name = "router_ED";
    int64_t first = 0;
    if (q.name != "moe.gate.weight") {
      const std::string rest = q.name.substr(std::string("moe.experts.").size());
      const std::string w = rest.substr(rest.find('.') + 1, 2);
      name = w + (w == "w2" ? "_EDF" : "_EFD");
      first = std::stoll(rest) * q.global_shape[0] * q.global_shape[1];
    }
    std::vector<int64_t> at;
    for (int64_t row = 0; row < q.shape[0]; ++row)
      for (int64_t column = 0; column < q.shape[1]; ++column) at.push_back(first + (q.begin[0] + row) * q.global_shape[1] + q.begin[1] + column);
    return {name, at};
  }
  absl::Status SetParameters() {
    for (Param& p : store_->params()) {
      for (const ParamPiece& q : p.pieces) {
        const auto [name, at] = Golden(q);
        std::vector<double> values;
        for (int64_t i : at) values.push_back(c_.real.at(name)[i]);
        MOE_RETURN_IF_ERROR(Put(device_.get(), values, PieceView(p.value, q)));
      }
    }
    return absl::OkStatus();
  }

  // Forward and backward: of sum(y dy) when `aux` is empty, else of that loss.
  absl::Status Call(config::GateConfig gate, const std::string& aux, const std::vector<double>& dy) {
    ModuleContext ctx;
    ctx.device = device_.get();
    ctx.arena = arena_.get();
    ctx.training = true;
    ctx.first_token = first_;
    MOE_RETURN_IF_ERROR(store_->ZeroGrad());
    MOE_ASSIGN_OR_RETURN(const TensorView dy_TD, Tensor(dy));
    MOE_ASSIGN_OR_RETURN(const TensorView y, Tensor(std::vector<double>(dy.size(), NAN)));   // overwritten, all of it
    MOE_ASSIGN_OR_RETURN(const TensorView dx, Tensor(std::vector<double>(dy.size(), NAN)));
    MoeSaved saved;
    RoutingSums sums(1, c_.E);
    MOE_RETURN_IF_ERROR(layer_->Forward(ctx, x_, valid_, false, &saved, y, &sums, 0));
    for (int64_t t = 0; t < tokens_; ++t) sums.tokens += c_.valid(first_ + t);
    MOE_RETURN_IF_ERROR(sums.Reduce(groups_.batch));
    gate.set_aux_loss(aux == "switch" || aux == "hf" ? aux : "none");
    gate.set_aux_loss_coef(1);
    gate.set_z_loss_coef(aux == "z" ? 1 : 0);
    const RoutingLosses losses = ComputeRoutingLosses(gate, c_.K, sums);
    TensorView aux_E;
    if (!losses.aux_gradient.empty()) {
      MOE_ASSIGN_OR_RETURN(aux_E, arena_->Make(dtype_, {c_.E}));
      MOE_RETURN_IF_ERROR(Put(device_.get(), losses.aux_gradient, aux_E));
    }
    std::string prefix = "grad.";
    LayerResult& r = part_.rows;
    if (aux.empty()) {
      MOE_ASSIGN_OR_RETURN(r.y_TD, ToHostDoubles(device_.get(), y));
      MOE_ASSIGN_OR_RETURN(r.weights_TK, ToHostDoubles(device_.get(), saved.routing.weights_TK));
      MOE_ASSIGN_OR_RETURN(r.ids_TK, GetIds(device_.get(), saved.routing.ids_TK));
      r.expert_count = sums.count;
      r.dropped = sums.dropped;
    } else {
      prefix = "aux." + aux + ".grad.";
      r.aux[aux] = aux == "z" ? losses.z : losses.aux;
    }
    MOE_RETURN_IF_ERROR(layer_->Backward(ctx, dy_TD, saved, aux_E, losses.z_coef, dx));
    MOE_ASSIGN_OR_RETURN(r.grad[prefix + "x_TD"], ToHostDoubles(device_.get(), dx));
    for (Param& p : store_->params()) {
      for (const ParamPiece& q : p.pieces) {
        const auto [name, at] = Golden(q);
        std::vector<double>& sum = part_.sums[prefix + name];
        sum.resize(c_.real.at(name).size(), 0.0);
        MOE_ASSIGN_OR_RETURN(const std::vector<double> g, ToHostDoubles(device_.get(), PieceView(p.grad, q)));
        for (size_t i = 0; i < g.size(); ++i) sum[at[i]] += g[i];
      }
    }
    return absl::OkStatus();
  }

  const LayerCase& c_;
  const DType dtype_;
  const int64_t first_, tokens_;
  const MoeGroups groups_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<ParamStore> store_;
  std::unique_ptr<MoeLayer> layer_;
  TensorView x_, valid_;
  Part part_;
};

absl::StatusOr<Placement> Place(const LayerCase& c, const Layout& layout, int64_t ranks) {
  ranks /= layout.etp;
  if (layout.experts == ExpertsOn::kBlocks) {
    MOE_ASSIGN_OR_RETURN(const auto partition, MakeDefaultRegistry()->MakePartition(config::PartitionConfig()));
    return partition->Place(c.E, ranks);
  }
  std::vector<int64_t> owner(c.E, 0);
  if (layout.experts == ExpertsOn::kRoundRobin)
    for (int64_t e = 0; e < c.E; ++e) owner[e] = e % ranks;
  return Placement::Make(layout.experts == ExpertsOn::kRoundRobin ? ranks : 1, owner);
}

absl::StatusOr<Part> RunRank(const LayerCase& c, const Machine& machine, const Layout& layout, const Placement& placement, const std::shared_ptr<InprocWorld>& world, int64_t rank) {
  const int64_t ranks = world->world_size(), first = std::accumulate(layout.tokens.begin(), layout.tokens.begin() + rank, int64_t{0});
  MOE_ASSIGN_OR_RETURN(const auto transport, MakeInprocTransport(world, rank));
  std::vector<int64_t> all(ranks);
  std::iota(all.begin(), all.end(), 0);
  MOE_ASSIGN_OR_RETURN(const auto batch, transport->CreateGroup(1, all));
  std::unique_ptr<Communicator> ep, etp;
  MoeGroups groups;
  groups.batch = batch.get();
  std::vector<int64_t> same_experts, same_share;
  for (int64_t r : all) {
    if (r / layout.etp == rank / layout.etp) same_experts.push_back(r);
    if (r % layout.etp == rank % layout.etp) same_share.push_back(r);
  }
  if (layout.etp > 1) {
    MOE_ASSIGN_OR_RETURN(etp, transport->CreateGroup(100 + same_experts[0], same_experts));
    groups.etp = etp.get();
  }
  if (layout.experts != ExpertsOn::kEveryRank) {
    MOE_ASSIGN_OR_RETURN(ep, transport->CreateGroup(2 + same_share[0], same_share));
    groups.ep = ep.get();
  }
  absl::StatusOr<Part> part = Rank(c, machine, first, layout.tokens[rank], groups).Run(machine, placement);
  if (!part.ok()) {
    transport->Abort(part.status());   // the others must not wait
    return part;
  }
  MOE_RETURN_IF_ERROR(transport->Shutdown());
  return part;
}

}  // namespace

absl::StatusOr<LayerResult> RunLayer(const LayerCase& c, const Machine& machine, const Layout& layout) {
  const int64_t ranks = std::max<int64_t>(static_cast<int64_t>(layout.tokens.size()), 1);
  std::vector<absl::StatusOr<Part>> parts(ranks, absl::UnknownError("not run"));
  MOE_ASSIGN_OR_RETURN(const Placement placement, Place(c, layout, ranks));
  if (layout.tokens.empty()) {
    parts[0] = Rank(c, machine, 0, c.T, MoeGroups()).Run(machine, placement);
  } else {
    const auto world = std::make_shared<InprocWorld>(ranks);
    std::vector<std::thread> threads;
    for (int64_t r = 0; r < ranks; ++r) threads.emplace_back([&, r] { parts[r] = RunRank(c, machine, layout, placement, world, r); });
    for (std::thread& t : threads) t.join();
  }
  LayerResult all;
  const auto append = [](auto* to, const auto& from) { to->insert(to->end(), from.begin(), from.end()); };
  for (int64_t r = 0; r < ranks; ++r) {
    if (!parts[r].ok()) return Annotate(parts[r].status(), absl::StrCat("rank ", r));
    const LayerResult& rows = parts[r]->rows;
    append(&all.y_TD, rows.y_TD);
    append(&all.weights_TK, rows.weights_TK);
    append(&all.ids_TK, rows.ids_TK);
    for (const auto& [name, g] : rows.grad) append(&all.grad[name], g);
    for (const auto& [name, g] : parts[r]->sums) {
      std::vector<double>& sum = all.grad[name];
      sum.resize(g.size(), 0.0);
      for (size_t i = 0; i < g.size(); ++i) sum[i] += g[i];
    }
    // Reduced values are the same on all ranks.
    if (r > 0 && (rows.expert_count != all.expert_count || rows.dropped != all.dropped || rows.aux != all.aux)) return Internal("rank ", r, " disagrees on the sums");
    all.expert_count = rows.expert_count;
    all.dropped = rows.dropped;
    all.aux = rows.aux;
  }
  return all;
}

}  // namespace moe::testing
