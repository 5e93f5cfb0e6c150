// A checkpoint of one layout, trained on in another: every number is that of the run that never stopped.
#include <cstdlib>
#include <filesystem>

#include "tests/engine/parallel_run.h"

namespace moe {
namespace {

struct Case {
  Axes from, to;
  const char *from_kind, *to_kind;
};

const Case kCases[] = {
    {{1, 2, 2, 1, 1, 2}, {1, 1, 1, 1, 1, 1}, "1f1b", "1f1b"},        {{1, 2, 2, 1, 1, 2}, {4, 1, 1, 1, 4, 1}, "zero_bubble", "1f1b"}, {{1, 2, 2, 1, 1, 2}, {1, 1, 1, 2, 2, 1}, "gpipe", "1f1b"},
    {{1, 1, 1, 1, 1, 1}, {1, 2, 2, 1, 1, 2}, "1f1b", "interleaved"}, {{8, 1, 1, 1, 8, 1}, {1, 1, 4, 2, 1, 2}, "1f1b", "1f1b"},        {{1, 1, 2, 1, 1, 1}, {2, 2, 1, 1, 4, 1}, "interleaved", "1f1b"},
    {{2, 1, 2, 1, 2, 1}, {1, 8, 1, 1, 1, 8}, "zero_bubble", "1f1b"},
};

class ReshardingTest : public ::testing::TestWithParam<Case> {};

TEST_P(ReshardingTest, GoesOnAsIfNothingHadBeen) {
  const Case& p = GetParam();
  const DeviceMaker reference = [] { return MakeReferenceDevice(); };
  for (const bool tied : {false, true}) {
    config::Config c = SweepConfig();
    c.mutable_model()->set_dtype("float64");
    c.mutable_model()->set_tie_embeddings(tied);
    c.mutable_train()->set_micro_batch(2);
    c.mutable_optimizer()->set_kind("adamw");   // moments travel too
    c.mutable_optimizer()->set_lr(0.01);
    const auto on = [&](const Axes& axes, const char* kind) {
      config::Config out = WithAxes(c, axes);
      out.mutable_pipeline()->set_kind(kind);
      return out;
    };
    const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR") ? std::getenv("TEST_TMPDIR") : "/tmp", "/resharding_", p.from.Name(), p.to.Name());
    std::filesystem::remove_all(path);
    Course before, after, whole;
    before.steps = after.steps = after.first = 3;
    before.after = [&](RankWorld* w) { return w->model->Save(path, "{}"); };
    after.before = [&](RankWorld* w) { return w->model->Load(path, false, nullptr); };
    whole.steps = 6;
    const auto stopped = TrainCourse(on(p.from, p.from_kind), p.from.world(), reference, before);
    ASSERT_TRUE(stopped.ok()) << stopped.status();
    const auto got = TrainCourse(on(p.to, p.to_kind), p.to.world(), reference, after);
    ASSERT_TRUE(got.ok()) << got.status();
    auto want = TrainCourse(c, 1, reference, whole);
    ASSERT_TRUE(want.ok()) << want.status();
    want->steps.erase(want->steps.begin(), want->steps.begin() + 3);
    want->counts.erase(want->counts.begin(), want->counts.begin() + 3);
    ExpectSame(*got, *want, 1e-8, absl::StrCat(p.from.Name(), " to ", p.to.Name()));   // AdamW magnifies rounding where gradients vanish
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, ReshardingTest, ::testing::ValuesIn(kCases), [](const auto& info) { return absl::StrCat(info.param.from.Name(), "_", info.param.from_kind, "_to_", info.param.to.Name(), "_", info.param.to_kind); });

}  // namespace
}  // namespace moe
