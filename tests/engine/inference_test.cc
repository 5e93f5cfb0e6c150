// Evaluation, logits and generation over layouts, with a vocabulary (37) that tensor parallelism cuts unevenly and lengths that context
// parallelism pads; batches that are refused, on all ranks for the same reason.
#include <cstring>

#include "tests/engine/parallel_run.h"

namespace moe {
namespace {

struct Case {
  Axes axes;
  const char* kind;
};

const Case kOneReplica[] = {{{1, 1, 1, 1, 1, 1}, "1f1b"}, {{4, 1, 1, 1, 2, 1}, "1f1b"}};   // no two ranks share sequences
const Case kCases[] = {
    {{1, 8, 1, 1, 8, 1}, "1f1b"},        {{1, 1, 1, 4, 2, 2}, "1f1b"},
    {{1, 2, 1, 2, 4, 1}, "1f1b"}, {{2, 1, 2, 1, 2, 1}, "gpipe"}, {{1, 2, 2, 2, 2, 2}, "interleaved"}, {{2, 1, 4, 1, 2, 1}, "zero_bubble"},
};

config::Config Configured(const Case& p) {
  config::Config c = WithAxes(SweepConfig(), p.axes);
  c.mutable_model()->set_dtype("float64");
  c.mutable_pipeline()->set_kind(p.kind);
  return c;
}

const DeviceMaker kReference = [] { return MakeReferenceDevice(); };

class InferenceTest : public ::testing::TestWithParam<Case> {
 protected:
  // Runs f on every rank of the layout.
  void On(const std::function<absl::Status(RankWorld*)>& f) const {
    const absl::Status s = RunWorld(Configured(GetParam()), GetParam().axes.world(), kReference, f);
    EXPECT_TRUE(s.ok()) << s;
  }
  // The same on one rank.
  static void Alone(const std::function<absl::Status(RankWorld*)>& f) {
    const absl::Status s = RunWorld(Configured({{}, "1f1b"}), 1, kReference, f);
    ASSERT_TRUE(s.ok()) << s;
  }
};

const BatchShape kShapes[] = {{8, 16}, {7, 13}, {3, 5}, {1, 1}, {1, 16}};

TEST_P(InferenceTest, EvaluationEqualsOneRank) {
  for (const BatchShape& shape : kShapes) {
    const Text text = TextOf(SweepConfig(), shape, 7);
    double want = 0;
    int64_t labels = 0;
    Alone([&](RankWorld* w) { return w->model->Evaluate(ShareOf(text, shape.sequences, *w->model), &want, &labels); });
    On([&](RankWorld* w) -> absl::Status {
      double nll = 0;
      int64_t n = 0;
      MOE_RETURN_IF_ERROR(w->model->Evaluate(ShareOf(text, shape.sequences, *w->model), &nll, &n));
      if (n != labels || !(std::abs(nll - want) <= 1e-11 * std::abs(want))) return Internal("rank ", w->rank, ": ", nll, " over ", n, " labels, must be ", want, " over ", labels);
      return absl::OkStatus();
    });
  }
}

TEST_P(InferenceTest, LogitsEqualOneRank) {
  const int64_t V = SweepConfig().model().vocab_size();
  for (const BatchShape& shape : kShapes) {
    const Text text = TextOf(SweepConfig(), shape, 8);
    std::vector<double> want(shape.sequences * shape.seq * V);
    Alone([&](RankWorld* w) { return w->model->Logits(ShareOf(text, shape.sequences, *w->model), want.data()); });
    On([&](RankWorld* w) -> absl::Status {
      const Batch mine = ShareOf(text, shape.sequences, *w->model);
      std::vector<double> got(mine.batch * mine.seq * V, -1e9);
      MOE_RETURN_IF_ERROR(w->model->Logits(mine, got.data()));
      const double* expected = want.data() + mine.first_sample * mine.seq * V;
      for (size_t i = 0; i < got.size(); ++i)
        if (!(std::abs(got[i] - expected[i]) <= 1e-11)) return Internal("rank ", w->rank, " element ", i, ": ", got[i], ", must be ", expected[i]);
      return absl::OkStatus();
    });
  }
}

// Longer than the window of 16; prompts of one token up to more than the window.
TEST_P(InferenceTest, GenerationEqualsOneRank) {
  for (const auto& [prompt_size, temperature] : {std::pair<int, double>{1, 0}, {5, 1}, {20, 0.7}}) {
    const Text text = TextOf(SweepConfig(), {1, prompt_size}, 9);
    std::vector<int32_t> want(18);
    Alone([&](RankWorld* w) { return w->model->Generate(text.ids, 18, temperature, 5, want.data()); });
    On([&](RankWorld* w) -> absl::Status {
      std::vector<int32_t> got(18, -1);
      MOE_RETURN_IF_ERROR(w->model->Generate(text.ids, 18, temperature, 5, got.data()));
      return got == want ? absl::OkStatus() : Internal("rank ", w->rank, " drew other tokens");
    });
  }
}

// A bad batch on any one rank is refused on all for the reason that this rank has, and the next step is as if nothing had been.
TEST_P(InferenceTest, ABadBatchOfOneRankIsRefusedOnAll) {
  const BatchShape shape{8, 16};
  const Text good = TextOf(SweepConfig(), shape, 10);
  double want = 0;
  Alone([&](RankWorld* w) {
    StepStats s;
    const absl::Status done = w->model->ForwardBackward(ShareOf(good, shape.sequences, *w->model), &s);
    want = s.loss;
    return done;
  });
  const struct { const char* name; std::function<void(Text*, Batch*)> spoil; const char* reason; } kinds[] = {
      {"id", [](Text* t, Batch* b) { t->ids[b->first_sample * t->seq] = 37; }, "outside model.vocab_size 37"},
      {"label", [](Text* t, Batch* b) { t->labels[b->first_sample * t->seq] = 99; }, "is 99, outside model.vocab_size 37"},
      {"no ids", [](Text*, Batch* b) { b->ids = nullptr; }, "ids is null"},
      {"negative", [](Text*, Batch* b) { b->batch = -1; }, "-1 sequences"},
      {"length", [](Text*, Batch* b) { b->seq = 0; }, "seq >= 1"},
  };
  for (const auto& kind : kinds) {
    for (int64_t guilty : {int64_t{0}, GetParam().axes.world() - 1}) {
      On([&](RankWorld* w) -> absl::Status {
        Text text = good;
        Batch b = ShareOf(text, shape.sequences, *w->model);
        if (w->rank == guilty) kind.spoil(&text, &b);
        StepStats s;
        const absl::Status refused = w->model->ForwardBackward(b, &s);
        if (refused.code() != absl::StatusCode::kInvalidArgument || refused.message().find(kind.reason) == absl::string_view::npos) return Internal(kind.name, " on rank ", guilty, ": rank ", w->rank, " says ", refused.ToString());
        if (w->rank != guilty && refused.message().find(absl::StrCat("rank ", guilty, ":")) == absl::string_view::npos) return Internal(kind.name, ": rank ", w->rank, " does not name rank ", guilty, ": ", refused.ToString());
        MOE_RETURN_IF_ERROR(w->model->ForwardBackward(ShareOf(good, shape.sequences, *w->model), &s));
        return std::abs(s.loss - want) <= 1e-11 * want ? absl::OkStatus() : Internal("loss ", s.loss, " afterwards, must be ", want);
      });
    }
  }
}

class SharedBatchTest : public InferenceTest {};

// Ranks that work on the same sequences were given different ones.
TEST_P(SharedBatchTest, BatchesThatDifferInsideADataParallelRankAreRefusedOnAll) {
  const Axes& a = GetParam().axes;
  const BatchShape shape{8, 16};
  const Text good = TextOf(SweepConfig(), shape, 11);
  for (const char* what : {"token", "label", "fewer", "shape"}) {
    On([&](RankWorld* w) -> absl::Status {
      Text text = good;
      Batch b = ShareOf(text, shape.sequences, *w->model);
      if (w->rank == a.world() - 1) {
        const int64_t at = b.first_sample * text.seq + 2;
        if (std::string(what) == "token") text.ids[at] = (text.ids[at] + 1) % 37;
        if (std::string(what) == "label") text.labels[at] = (text.labels[at] + 1) % 37;
        if (std::string(what) == "fewer") --b.batch;
        if (std::string(what) == "shape") {   // the same bytes
          b.batch *= 2;
          b.seq /= 2;
        }
      }
      StepStats s;
      const absl::Status refused = w->model->ForwardBackward(b, &s);
      if (refused.code() != absl::StatusCode::kInvalidArgument || refused.message().find("give them the same batch") == absl::string_view::npos) return Internal(what, ": rank ", w->rank, " says ", refused.ToString());
      return w->model->ForwardBackward(ShareOf(good, shape.sequences, *w->model), &s);
    });
  }
}

std::string CaseName(const ::testing::TestParamInfo<Case>& info) { return absl::StrCat(info.param.axes.Name(), "_", info.param.kind); }

INSTANTIATE_TEST_SUITE_P(OneReplica, InferenceTest, ::testing::ValuesIn(kOneReplica), CaseName);
INSTANTIATE_TEST_SUITE_P(Layouts, InferenceTest, ::testing::ValuesIn(kCases), CaseName);
INSTANTIATE_TEST_SUITE_P(Layouts, SharedBatchTest, ::testing::ValuesIn(kCases), CaseName);

}  // namespace
}  // namespace moe
