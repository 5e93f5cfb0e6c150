// Stages that are not alike (case H10): without MoE layers, without layers, with unequal numbers of layers, with tied embeddings
// at both ends. Losses, gradient norm and parameters equal those of one rank, in float64, for every schedule.
#include "tests/engine/parallel_run.h"

namespace moe {
namespace {

struct Case {
  const char* name;
  int32_t dp, tp, pp, cp, ep, etp;
  const char* stage_layers;      // of pp stages
  const char* interleaved;       // of 2 pp virtual stages
  int32_t dense_layers;
  bool tied;
};

class StagesTest : public ::testing::TestWithParam<Case> {};

TEST_P(StagesTest, EqualsOneRank) {
  const Case& p = GetParam();
  for (const char* kind : {"gpipe", "1f1b", "interleaved", "zero_bubble"}) {
    config::Config c = SweepConfig();
    c.set_device("reference");
    c.mutable_model()->set_dtype("float64");
    c.mutable_model()->set_num_dense_layers(p.dense_layers);
    c.mutable_model()->set_tie_embeddings(p.tied);
    const auto reference = [] { return MakeReferenceDevice(); };
    const auto one = TrainOn(c, 1, reference, 3);
    ASSERT_TRUE(one.ok()) << one.status();
    auto* m = c.mutable_mesh();
    m->set_dp(p.dp);
    m->set_tp(p.tp);
    m->set_pp(p.pp);
    m->set_cp(p.cp);
    m->set_ep(p.ep);
    m->set_etp(p.etp);
    c.mutable_pipeline()->set_kind(kind);
    c.mutable_pipeline()->set_stage_layers(std::string(kind) == "interleaved" ? p.interleaved : p.stage_layers);
    c.mutable_train()->set_micro_batch(2);
    const auto got = TrainOn(c, p.dp * p.tp * p.pp * p.cp, reference, 3);
    ASSERT_TRUE(got.ok()) << kind << ": " << got.status();
    ExpectSame(*got, *one, 1e-10, absl::StrCat(p.name, " ", kind));
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, StagesTest,
                         ::testing::Values(Case{"first_stage_without_experts", 2, 1, 2, 1, 2, 1, "2,2", "1,1,1,1", 2, false}, Case{"only_the_last_stage_has_experts", 1, 2, 2, 1, 2, 1, "3,1", "1,1,1,1", 3, false},
                                           Case{"no_experts_at_all", 1, 2, 2, 1, 1, 1, "3,1", "2,0,1,1", 4, false}, Case{"unequal", 2, 1, 2, 1, 2, 1, "1,3", "2,1,0,1", 0, false},
                                           Case{"stages_without_layers", 1, 1, 4, 1, 1, 1, "0,3,1,0", "0,1,0,1,0,1,1,0", 0, false}, Case{"tied", 2, 1, 2, 1, 2, 1, "2,2", "1,1,1,1", 0, true},
                                           Case{"tied_and_shared_vocabulary", 1, 2, 2, 1, 2, 1, "2,2", "1,1,1,1", 0, true}, Case{"tied_four_stages", 1, 1, 4, 2, 2, 1, "1,1,1,1", "1,0,1,0,1,0,0,1", 1, true},
                                           Case{"shared_widths", 1, 2, 2, 1, 1, 2, "1,3", "0,1,2,1", 1, false}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace moe
