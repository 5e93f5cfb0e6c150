// Batches that change from step to step: other lengths (which 2 cp does not divide, so that they are padded), fewer sequences than
// ranks or stages, micro-batches that are empty. Cases H9, H13, H14, H21.
#include "tests/engine/parallel_run.h"

namespace moe {
namespace {

struct Case {
  Axes axes;
  const char* kind;
  int64_t micro_batch;
};

const Case kCases[] = {
    {{4, 1, 1, 1, 4, 1}, "1f1b", 0},        {{8, 1, 1, 1, 2, 1}, "1f1b", 2},        {{1, 4, 1, 1, 4, 1}, "1f1b", 1},        {{1, 2, 1, 2, 2, 2}, "1f1b", 0},        {{2, 1, 1, 4, 4, 1}, "1f1b", 3},
    {{1, 2, 4, 1, 2, 1}, "1f1b", 1},        {{1, 2, 4, 1, 1, 2}, "zero_bubble", 1}, {{1, 1, 2, 1, 1, 1}, "interleaved", 1}, {{2, 1, 2, 1, 2, 1}, "interleaved", 2}, {{2, 1, 2, 2, 4, 1}, "interleaved", 1},
    {{4, 1, 2, 1, 4, 1}, "gpipe", 1},       {{1, 2, 2, 2, 2, 2}, "zero_bubble", 2},
};

class ShapesTest : public ::testing::TestWithParam<Case> {};

TEST_P(ShapesTest, EqualsOneRank) {
  const Case& p = GetParam();
  config::Config c = SweepConfig();
  c.mutable_model()->set_dtype("float64");
  Course course;
  course.shapes = {{8, 16}, {7, 13}, {3, 5}, {1, 1}, {5, 15}, {2, 9}};
  course.steps = static_cast<int>(course.shapes.size());
  const auto reference = [] { return MakeReferenceDevice(); };
  static const auto one = TrainCourse(c, 1, reference, course);
  ASSERT_TRUE(one.ok()) << one.status();
  config::Config parallel = WithAxes(c, p.axes);
  parallel.mutable_pipeline()->set_kind(p.kind);
  parallel.mutable_train()->set_micro_batch(p.micro_batch);
  const auto got = TrainCourse(parallel, p.axes.world(), reference, course);
  ASSERT_TRUE(got.ok()) << got.status();
  ExpectSame(*got, *one, 1e-10, absl::StrCat(p.axes.Name(), " ", p.kind));
}

INSTANTIATE_TEST_SUITE_P(Layouts, ShapesTest, ::testing::ValuesIn(kCases), [](const auto& info) { return absl::StrCat(info.param.axes.Name(), "_", info.param.kind, "_", info.param.micro_batch); });

}  // namespace
}  // namespace moe
