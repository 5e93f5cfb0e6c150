// The whole MoE layer against tests/golden/layer: outputs, routing, losses and every gradient, on one rank and on several
// that share tokens (unevenly, some have none), experts and their inner width.
#include <iostream>

#include "gtest/gtest.h"
#include "tests/golden/layer_run.h"

namespace moe::testing {
namespace {

std::vector<Layout> Layouts(const LayerCase& c) {
  const std::vector<int64_t> golden = c.info["gate"]["tokens_per_rank"].get<std::vector<int64_t>>();
  std::vector<int64_t> four = golden;
  four.push_back(0);
  std::vector<Layout> out = {{"golden split, experts everywhere", golden, ExpertsOn::kEveryRank},
                             {"golden split, experts in turn", golden, ExpertsOn::kRoundRobin},
                             {"a fourth rank without tokens, experts in blocks", four, ExpertsOn::kBlocks}};
  // Where the drops of a rank depend on its own tokens, only the golden split gives the golden values.
  if (c.info["gate"]["capacity_scope"] == "per_rank") return out;
  out.push_back({"one rank", {}});
  out.push_back({"two ranks, all tokens on the second", {0, c.T}, ExpertsOn::kBlocks});
  out.push_back({"eight ranks", {1, 0, 5, 2, 0, 0, c.T - 9, 1}, ExpertsOn::kBlocks});
  out.push_back({"eight ranks, two share an expert", {1, 0, 5, 2, 0, 0, c.T - 9, 1}, ExpertsOn::kBlocks, 2});
  out.push_back({"five ranks share every expert", {1, 0, c.T - 9, 6, 2}, ExpertsOn::kEveryRank, 5});
  return out;
}

class LayerTest : public ::testing::TestWithParam<std::tuple<const char*, Machine>> {};

TEST_P(LayerTest, EqualsTheGoldenLayerOnEveryLayout) {
  auto loaded = LoadLayerCase(std::get<0>(GetParam()));
  ASSERT_OK(loaded.status());
  const LayerCase& c = *loaded;
  const Machine machine = ForCase(std::get<1>(GetParam()), c);
  double worst = 0;
  const auto compare = [&](const std::string& what, const std::vector<double>& got, const std::vector<double>& want) { worst = std::max(worst, ExpectClose(what, got, want, machine)); };
  for (const Layout& layout : Layouts(c)) {
    SCOPED_TRACE(layout.name);
    const auto run = RunLayer(c, machine, layout);
    ASSERT_OK(run.status());
    const LayerResult& r = *run;

    // Routing and drops, exactly.
    ASSERT_EQ(static_cast<int64_t>(r.ids_TK.size()), c.T * c.K);
    for (int64_t i = 0; i < c.T * c.K; ++i) {
      const bool kept = c.valid(i / c.K) && c.integer.at("kept_TK")[i] != 0;
      ASSERT_EQ(r.ids_TK[i], kept ? c.integer.at("ids_TK")[i] : -1) << "token " << i / c.K;
      if (!kept) { ASSERT_EQ(r.weights_TK[i], 0); }
    }
    EXPECT_EQ(r.expert_count, c.info["expert_count"].get<std::vector<int64_t>>());
    EXPECT_EQ(r.dropped, c.info["dropped_routes"].get<int64_t>());

    compare("weights_TK", r.weights_TK, c.real.at("weights_TK"));
    compare("y_TD", c.Stored(r.y_TD), c.real.at("y_TD"));
    double loss = 0;
    for (size_t i = 0; i < r.y_TD.size(); ++i) loss += c.valid(i / c.D) ? r.y_TD[i] * c.real.at("dy_TD")[i] : 0;
    compare("loss_sum_y_dy", {loss}, {c.info["loss_sum_y_dy"].get<double>()});
    for (const auto& [kind, value] : c.info["aux"].items()) compare("aux " + kind, {r.aux.at(kind)}, {value.get<double>()});

    int compared = 0;
    for (const auto& [name, golden] : c.real) {
      const size_t at = name.find("grad.");
      if (at == std::string::npos) continue;
      ++compared;
      const std::string of = name.substr(at + 5), prefix = name.substr(0, at + 5);
      if (of == "router_bias_E") {
        compare(name, c.AddedColumn(r.grad.at(prefix + "router_ED")), golden);
      } else if (of == "w2_EDF" && c.D != c.stored_D) {
        std::vector<double> w2;
        for (int64_t i = 0; i < c.E * c.D; ++i)
          if (i % c.D < c.stored_D) w2.insert(w2.end(), r.grad.at(name).begin() + i * c.F, r.grad.at(name).begin() + (i + 1) * c.F);
        compare(name, w2, golden);
      } else {
        compare(name, of == "w2_EDF" ? r.grad.at(name) : c.Stored(r.grad.at(name)), golden);
      }
    }
    EXPECT_GE(compared, 8);
    // Losses on scores touch no expert; tokens that are padding and experts that nobody chose get exactly nothing.
    for (const auto& [name, g] : r.grad) {
      if (name.rfind("aux.", 0) == 0 && name.find(".w") != std::string::npos) { EXPECT_EQ(g, std::vector<double>(g.size(), 0.0)) << name; }
      if (name.find("x_TD") == std::string::npos) continue;
      for (size_t i = 0; i < g.size(); ++i) ASSERT_TRUE(c.valid(i / c.D) || g[i] == 0) << name << "[" << i << "]";
    }
    const int64_t size = c.F * c.D;
    for (int64_t i = 0; i < c.E * size; ++i) ASSERT_TRUE(r.expert_count[i / size] > 0 || r.grad.at("grad.w1_EFD")[i] == 0) << "expert " << i / size;
  }
  std::cout << c.name << " on " << machine.name << ": largest error " << worst << " of " << machine.tolerance << "\n";
}

INSTANTIATE_TEST_SUITE_P(Golden, LayerTest,
                         ::testing::Combine(::testing::Values("mixtral", "mixtral_masked", "mixtral_collapse", "switch", "switch_per_rank", "switch_probability"), ::testing::ValuesIn(Machines())),
                         [](const auto& info) { return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param).name; });

}  // namespace
}  // namespace moe::testing
