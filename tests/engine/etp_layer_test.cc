// The MoE layer with its experts' inner width and its experts shared by ranks, against one rank: outputs, every gradient and
// initial value, the collectives, failures, and gradients of weights that are left for later.
#include <cmath>

#include "gtest/gtest.h"
#include "tests/engine/layer_world.h"

namespace moe::testing {
namespace {

using Names = std::vector<std::string>;

std::vector<LayerMachine> Machines() {
  const auto reference = []() -> absl::StatusOr<std::unique_ptr<Device>> { return MakeReferenceDevice(); };
  const auto cpu = []() { return MakeCpuDevice(1); };
  return {{"reference_float64", DType::kF64, 1e-12, reference}, {"reference_float32", DType::kF32, 1e-5, reference}, {"cpu_float32", DType::kF32, 1e-5, cpu}};
}

MoeLayerSpec Spec(const std::string& gate, const std::string& expert, bool bias) {
  MoeLayerSpec s;
  s.name = "moe";
  s.d_model = 6;
  s.d_hidden = 8;
  s.num_global_experts = 8;
  s.top_k = gate == "switch" ? 1 : 2;
  s.init_stddev_router = 1;
  s.init_stddev_in = 0.6;
  s.init_stddev_out = 0.5;
  s.gate.set_kind(gate);
  if (gate == "switch") s.gate.set_jitter(0.2);
  s.expert.set_kind(expert);
  s.expert.set_bias(bias);
  return s;
}

// What a layout computes, as global tensors.
struct Result {
  std::vector<double> y_TD, dx_TD;
  Tensors value, grad;                      // pieces of all ranks; gradients are summed over ranks that have copies
  std::vector<Tensors> value_copy, grad_copy;   // by place in the etp group: parameters that are held but not counted
  std::vector<Names> collectives;           // of each rank: forward, then backward
};

absl::StatusOr<Result> Compute(const MoeLayerSpec& spec, const LayerLayout& layout, const LayerMachine& machine) {
  struct Part {
    std::vector<double> y, dx;
    std::vector<std::tuple<ParamPiece, bool, std::vector<double>, std::vector<double>>> pieces;   // piece, counted, value, gradient
    Names log;
  };
  std::vector<Part> parts(layout.ranks());
  const auto statuses = RunLayerRanks(spec, layout, machine, [&](LayerRank* r) -> absl::Status {
    Part& part = parts[r->rank];
    const ModuleContext ctx = r->Context();
    Device* d = ctx.device;
    MOE_ASSIGN_OR_RETURN(const TensorView x, r->Rows("x"));
    MOE_ASSIGN_OR_RETURN(const TensorView dy, r->Rows("dy"));
    MOE_ASSIGN_OR_RETURN(const TensorView y, r->arena->Make(machine.dtype, x.shape()));
    MOE_ASSIGN_OR_RETURN(const TensorView dx, r->arena->Make(machine.dtype, x.shape()));
    MOE_ASSIGN_OR_RETURN(const TensorView aux, r->arena->Make(machine.dtype, {spec.num_global_experts}));
    MOE_RETURN_IF_ERROR(d->RandomNormal(aux, 12, 0, 0, 0.3));
    MoeSaved saved;
    RoutingSums sums(1, spec.num_global_experts);
    MOE_RETURN_IF_ERROR(r->layer->Forward(ctx, x, TensorView(), false, &saved, y, &sums, 0));
    MOE_RETURN_IF_ERROR(r->layer->Backward(ctx, dy, saved, aux, 0.2, dx));
    part.log = r->log;
    MOE_ASSIGN_OR_RETURN(part.y, ToHostDoubles(d, y));
    MOE_ASSIGN_OR_RETURN(part.dx, ToHostDoubles(d, dx));
    for (const Param& p : r->store->params()) {
      for (const ParamPiece& q : p.pieces) {
        MOE_ASSIGN_OR_RETURN(std::vector<double> value, ToHostDoubles(d, PieceView(p.value, q)));
        MOE_ASSIGN_OR_RETURN(std::vector<double> grad, ToHostDoubles(d, PieceView(p.grad, q)));
        part.pieces.emplace_back(q, p.counted, std::move(value), std::move(grad));
      }
    }
    return absl::OkStatus();
  });
  Result all;
  all.value_copy.resize(layout.etp);
  all.grad_copy.resize(layout.etp);
  for (int64_t rank = 0; rank < layout.ranks(); ++rank) {
    if (!statuses[rank].ok()) return Annotate(statuses[rank], absl::StrCat("rank ", rank));
    const Part& part = parts[rank];
    all.y_TD.insert(all.y_TD.end(), part.y.begin(), part.y.end());
    all.dx_TD.insert(all.dx_TD.end(), part.dx.begin(), part.dx.end());
    all.collectives.push_back(part.log);
    const int64_t etp = rank % layout.etp;
    const bool first_copy = rank < layout.etp * layout.ep;
    for (const auto& [piece, counted, value, grad] : part.pieces) {
      // Every rank has the router's values.
      if (first_copy && (piece.name != "moe.gate.weight" || rank == 0)) AddPiece(piece, value, counted ? &all.value : &all.value_copy[etp]);
      AddPiece(piece, grad, counted ? &all.grad : &all.grad_copy[etp]);
    }
  }
  return all;
}

void ExpectClose(const std::string& what, const std::vector<double>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double largest = 1e-2, worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(std::isfinite(got[i])) << what << "[" << i << "]";
    largest = std::max(largest, std::abs(want[i]));
    worst = std::max(worst, std::abs(got[i] - want[i]));
  }
  EXPECT_LE(worst / largest, tolerance) << what;
}

LayerLayout OneRank(int64_t tokens) { return {1, 1, 1, {tokens}}; }

// Uneven tokens, with ranks that have none and, for two tokens, most of them.
std::vector<LayerLayout> Layouts() {
  std::vector<LayerLayout> out;
  for (int64_t etp : {1, 2, 4}) {
    for (int64_t ep : {1, 2, 4}) {
      for (int64_t edp : {1, 2}) {
        LayerLayout l{etp, ep, edp, {}};
        if (l.ranks() > 8) continue;
        const std::vector<int64_t> some = {3, 0, 7, 1, 0, 2, 5, 4};
        l.tokens.assign(some.begin(), some.begin() + l.ranks());
        out.push_back(l);
        if (edp > 1) continue;
        l.tokens.assign(l.ranks(), 0);
        out.push_back(l);   // nothing at all
        l.tokens.back() = 9;
        out.push_back(l);
      }
    }
  }
  return out;
}

struct Kind { std::string gate, expert; bool bias; };

class EtpLayerTest : public ::testing::TestWithParam<std::tuple<Kind, LayerMachine>> {};

TEST_P(EtpLayerTest, EqualsOneRank) {
  const auto& [kind, machine] = GetParam();
  const MoeLayerSpec spec = Spec(kind.gate, kind.expert, kind.bias);
  std::map<int64_t, Result> one;   // by number of tokens
  for (const LayerLayout& layout : Layouts()) {
    SCOPED_TRACE(layout.name());
    if (!one.count(layout.total())) {
      auto run = Compute(spec, OneRank(layout.total()), machine);
      ASSERT_TRUE(run.ok()) << run.status();
      one[layout.total()] = *std::move(run);
    }
    const Result& want = one[layout.total()];
    const auto got = Compute(spec, layout, machine);
    ASSERT_TRUE(got.ok()) << got.status();
    ExpectClose("y", got->y_TD, want.y_TD, machine.tolerance);
    ExpectClose("dx", got->dx_TD, want.dx_TD, machine.tolerance);
    EXPECT_EQ(got->value, want.value);   // the split changes no initial value
    ASSERT_EQ(got->grad.size(), want.grad.size());
    for (const auto& [name, g] : want.grad) ExpectClose("gradient of " + name, got->grad.at(name), g, machine.tolerance);
    // What every rank of the etp group holds has the same bits everywhere, gradients too: they must stay the same.
    for (int64_t t = 1; t < layout.etp; ++t) {
      EXPECT_EQ(got->grad_copy[t].size(), kind.bias ? 8u : 0u);
      for (const auto& [name, g] : got->grad_copy[t]) EXPECT_EQ(g, got->grad.at(name)) << name;
      for (const auto& [name, v] : got->value_copy[t]) EXPECT_EQ(v, got->value.at(name)) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, EtpLayerTest,
                         ::testing::Combine(::testing::Values(Kind{"mixtral", "swiglu", false}, Kind{"mixtral", "swiglu", true}, Kind{"mixtral", "gelu", true}, Kind{"switch", "gelu", false}), ::testing::ValuesIn(Machines())),
                         [](const auto& info) {
                           const Kind& k = std::get<0>(info.param);
                           return absl::StrCat(k.gate, "_", k.expert, k.bias ? "_bias_" : "_", std::get<1>(info.param).name);
                         });

// H8 and the plan of operations: groups of one do nothing, the others exactly this.
TEST(EtpCollectivesTest, AreThoseOfThePlan) {
  for (const auto& [layout, want] : std::vector<std::pair<LayerLayout, Names>>{
           {{1, 1, 1, {4}}, {}},
           {{1, 2, 1, {4, 1}}, {"ep AG", "ep A2AV", "ep A2AV", /*backward*/ "ep A2AV", "ep A2AV"}},
           {{2, 1, 1, {4, 1}}, {"etp AG", "etp A2AV", "etp A2AV", /*backward*/ "etp A2AV", "etp A2AV"}},
           {{2, 2, 1, {4, 1, 0, 3}}, {"ep AG", "ep A2AV", "etp AG", "etp A2AV", "etp A2AV", "ep A2AV", /*backward*/ "ep A2AV", "etp A2AV", "etp A2AV", "ep A2AV"}}}) {
    SCOPED_TRACE(layout.name());
    const auto run = Compute(Spec("mixtral", "swiglu", true), layout, Machines()[0]);
    ASSERT_TRUE(run.ok()) << run.status();
    for (const Names& log : run->collectives) EXPECT_EQ(log, want);
  }
}

// A NaN on one rank is an error on every rank that exchanges with it, however far away, and the next call works.
TEST(EtpFailureTest, OfOneRankReachesAll) {
  for (const auto& [etp, ep] : std::vector<std::pair<int64_t, int64_t>>{{2, 1}, {1, 2}, {2, 2}, {4, 2}}) {
    for (bool capacity : {false, true}) {
      LayerLayout layout{etp, ep, 1, {}};
      layout.tokens.assign(layout.ranks(), 2);
      MoeLayerSpec spec = Spec("mixtral", "gelu", false);
      if (capacity) spec.gate.set_capacity_factor(1);
      for (int64_t bad = 0; bad < layout.ranks(); ++bad) {
        SCOPED_TRACE(absl::StrCat(layout.name(), " bad rank ", bad, capacity ? " with capacity" : ""));
        const auto statuses = RunLayerRanks(spec, layout, Machines()[0], [&](LayerRank* r) -> absl::Status {
          const ModuleContext ctx = r->Context();
          MOE_ASSIGN_OR_RETURN(const TensorView x, r->Rows("x"));
          MOE_ASSIGN_OR_RETURN(const TensorView y, r->arena->Make(x.dtype(), x.shape()));
          absl::Status first;
          for (int call = 0; call < 2; ++call) {
            if (r->rank == bad && call == 0) MOE_RETURN_IF_ERROR(ctx.device->Fill(x.Rows(1, 1), NAN));
            if (r->rank == bad && call == 1) MOE_RETURN_IF_ERROR(ctx.device->Fill(x.Rows(1, 1), 1));
            MoeSaved saved;
            RoutingSums sums(1, spec.num_global_experts);
            const absl::Status s = r->layer->Forward(ctx, x, TensorView(), false, &saved, y, &sums, 0);
            if (call == 0) first = s;
            else if (!s.ok()) return Internal("the second call: ", s.ToString());
          }
          return first;
        });
        for (const absl::Status& s : statuses) {
          EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument) << s;
          EXPECT_NE(s.message().find("router logits"), absl::string_view::npos) << s;
          EXPECT_EQ(GetFailureInfo(s).origin_rank, bad) << s;
        }
        EXPECT_EQ(statuses[bad].message().find("rank"), absl::string_view::npos) << statuses[bad];
        EXPECT_EQ(statuses[bad == 0 ? 1 : 0].message().find(absl::StrCat("rank ", bad, ": moe: ")), 0u) << statuses[bad == 0 ? 1 : 0];
      }
    }
  }
}

class WeightGradLaterTest : public ::testing::TestWithParam<LayerMachine> {};

// Two micro-batches: input gradients of both first, then what was left for later gives the bits of everything at once.
TEST_P(WeightGradLaterTest, GivesTheSameBits) {
  const LayerMachine machine = GetParam();
  for (const auto& [etp, ep] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {2, 1}, {1, 2}, {2, 2}}) {
    for (const Kind& kind : {Kind{"mixtral", "swiglu", true}, Kind{"switch", "gelu", true}}) {
      const MoeLayerSpec spec = Spec(kind.gate, kind.expert, kind.bias);
      LayerLayout layout{etp, ep, 1, {}};
      for (int64_t r = 0; r < layout.ranks(); ++r) layout.tokens.push_back(7 - 2 * r);
      SCOPED_TRACE(layout.name());
      const auto statuses = RunLayerRanks(spec, layout, machine, [&](LayerRank* r) -> absl::Status {
        Device* d = r->device.get();
        std::vector<std::vector<double>> dx[2], grads[2];
        for (int way = 0; way < 2; ++way) {
          MOE_RETURN_IF_ERROR(r->store->ZeroGrad());
          std::vector<std::function<absl::Status()>> later;
          for (const char* micro : {"x0", "x1"}) {
            ModuleContext ctx = r->Context();
            if (way == 1) ctx.later = &later;
            MOE_ASSIGN_OR_RETURN(const TensorView x, r->Rows(micro));
            MOE_ASSIGN_OR_RETURN(const TensorView dy, r->Rows("dy"));
            MOE_ASSIGN_OR_RETURN(const TensorView y, r->arena->Make(x.dtype(), x.shape()));
            MOE_ASSIGN_OR_RETURN(const TensorView out, r->arena->Make(x.dtype(), x.shape()));
            MOE_ASSIGN_OR_RETURN(const TensorView aux, r->arena->Make(machine.dtype, {spec.num_global_experts}));
            MOE_RETURN_IF_ERROR(d->Fill(aux, 0.1));
            MoeSaved saved;   // gone when the work is done
            RoutingSums sums(1, spec.num_global_experts);
            MOE_RETURN_IF_ERROR(r->layer->Forward(ctx, x, TensorView(), false, &saved, y, &sums, 0));
            MOE_RETURN_IF_ERROR(r->layer->Backward(ctx, dy, saved, aux, 0.2, out));
            MOE_ASSIGN_OR_RETURN(std::vector<double> values, ToHostDoubles(d, out));
            dx[way].push_back(std::move(values));
          }
          if (way == 1 && later.empty()) return Internal("nothing was left for later");
          for (const Param& p : r->store->params()) {
            MOE_ASSIGN_OR_RETURN(const double norm, d->SumSquares(p.grad));
            if (way == 1 && norm != 0) return Internal(p.name, " has a gradient before its time");
          }
          for (const auto& work : later) MOE_RETURN_IF_ERROR(work());
          for (const Param& p : r->store->params()) {
            MOE_ASSIGN_OR_RETURN(const double norm, d->SumSquares(p.grad));
            if (norm == 0) return Internal(p.name, " has no gradient");
            MOE_ASSIGN_OR_RETURN(std::vector<double> values, ToHostDoubles(d, p.grad));
            grads[way].push_back(std::move(values));
          }
        }
        if (dx[0] != dx[1]) return Internal("input gradients differ");
        return grads[0] == grads[1] ? absl::OkStatus() : Internal("gradients of weights differ");
      });
      for (const absl::Status& s : statuses) EXPECT_TRUE(s.ok()) << s;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Machines, WeightGradLaterTest, ::testing::ValuesIn(Machines()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace moe::testing
