// The numbers do not depend on the layout: every factorisation of 1, 2, 4 and 8 ranks into dp, tp, pp, cp, ep and etp, every
// pipeline schedule, every split into micro-batches. Cases H1, G1, G2, G4, G5, G8, G10, H8, H14.
#include "tests/engine/parallel_run.h"

namespace moe {
namespace {

constexpr int kSteps = 5;

std::unique_ptr<Device> OneThread() { return *MakeCpuDevice(1); }

struct Layout {
  int64_t world = 1, dp = 1, tp = 1, pp = 1, cp = 1, ep = 1, etp = 1;
  std::string Name() const { return absl::StrCat(world, " ranks dp", dp, " tp", tp, " pp", pp, " cp", cp, " ep", ep, " etp", etp); }
};

std::vector<Layout> AllLayouts() {
  std::vector<Layout> out;
  for (int64_t world : {1, 2, 4, 8}) {
    for (int64_t pp = 1; pp <= world; pp *= 2) {
      const int64_t stage = world / pp;
      for (int64_t tp = 1; tp <= stage; tp *= 2)
        for (int64_t cp = 1; tp * cp <= stage; cp *= 2)
          for (int64_t etp = 1; etp <= stage; etp *= 2)
            for (int64_t ep = 1; etp * ep <= stage; ep *= 2) out.push_back({world, stage / tp / cp, tp, pp, cp, ep, etp});
    }
  }
  return out;
}

config::Config On(config::Config c, const Layout& l, const std::string& kind, int64_t micro_batch) {
  auto* m = c.mutable_mesh();
  m->set_dp(static_cast<int32_t>(l.dp));
  m->set_tp(static_cast<int32_t>(l.tp));
  m->set_pp(static_cast<int32_t>(l.pp));
  m->set_cp(static_cast<int32_t>(l.cp));
  m->set_ep(static_cast<int32_t>(l.ep));
  m->set_etp(static_cast<int32_t>(l.etp));
  c.set_ranks(static_cast<int32_t>(l.world));
  c.mutable_pipeline()->set_kind(kind);
  c.mutable_train()->set_micro_batch(micro_batch);
  // More virtual stages than layers: some have none.
  const int64_t virtual_stages = l.pp * (kind == "interleaved" && l.pp > 1 ? 2 : 1);
  if (virtual_stages == 8) c.mutable_pipeline()->set_stage_layers(l.pp == 8 ? "1,0,0,1,0,1,1,0" : "0,1,1,0,0,1,0,1");
  if (virtual_stages == 16) c.mutable_pipeline()->set_stage_layers("0,0,1,0,0,0,0,1,1,0,0,0,0,0,1,0");
  return c;
}

class SweepTest : public ::testing::TestWithParam<int> {};

TEST_P(SweepTest, SameNumbers) {
  const Layout l = AllLayouts()[GetParam()];
  for (const char* optimizer : {"sgd", "adamw"}) {
    const bool adamw = std::string(optimizer) == "adamw";
    config::Config c = SweepConfig();
    c.mutable_optimizer()->set_kind(optimizer);
    if (adamw) c.mutable_optimizer()->set_lr(0.001);
    static std::map<std::string, Trained> references;
    if (references.count(optimizer) == 0) {
      const auto reference = TrainOn(On(c, Layout{}, "1f1b", 0), 1, OneThread, kSteps);
      ASSERT_TRUE(reference.ok()) << reference.status();
      references[optimizer] = *reference;
    }
    for (const char* kind : {"gpipe", "1f1b", "interleaved", "zero_bubble"}) {
      if (l.pp == 1 && std::string(kind) == "interleaved") continue;   // is 1f1b
      for (int64_t micro_batch : {0, 1, 2}) {
        if (l.pp == 1 && std::string(kind) == "gpipe" && micro_batch != 1) continue;   // is 1f1b
        if (adamw && micro_batch == 2) continue;
        const std::string what = absl::StrCat(l.Name(), " ", kind, " micro_batch ", micro_batch, " ", optimizer);
        const auto got = TrainOn(On(c, l, kind, micro_batch), l.world, OneThread, kSteps);
        ASSERT_TRUE(got.ok()) << what << ": " << got.status();
        ExpectSame(*got, references[optimizer], adamw ? 1e-4 : 1e-5, what);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, SweepTest, ::testing::Range(0, static_cast<int>(AllLayouts().size())), [](const auto& info) {
  std::string name = AllLayouts()[info.param].Name();
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
});

}  // namespace
}  // namespace moe
