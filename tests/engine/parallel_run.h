// A small model trained on any layout of ranks, and what the outcome of two layouts must have in common.
#ifndef MOE_TESTS_ENGINE_PARALLEL_RUN_H_
#define MOE_TESTS_ENGINE_PARALLEL_RUN_H_

#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/engine/rank_world.h"

namespace moe {

// 4 layers, 8 experts top 2, 8 heads, width 32, sequences of 16: divisible by every axis of up to 8 ranks.
inline config::Config SweepConfig() {
  config::Config c;
  auto* m = c.mutable_model();
  m->set_vocab_size(37);
  m->set_num_layers(4);
  m->set_d_model(32);
  m->set_num_heads(8);
  m->set_num_kv_heads(8);
  m->set_num_global_experts(8);
  m->set_top_k(2);
  m->set_d_hidden(16);
  m->set_init_std(0.1);
  c.mutable_train()->set_seq_len(16);
  c.mutable_train()->set_global_batch(8);
  c.mutable_gate()->set_aux_loss_coef(0.1);
  c.mutable_gate()->set_z_loss_coef(0.05);
  c.mutable_optimizer()->set_kind("sgd");
  c.mutable_optimizer()->set_lr(0.1);
  c.mutable_optimizer()->set_warmup_steps(2);
  c.mutable_optimizer()->set_clip_norm(0.5);   // below the norms that come: clipping is on
  c.set_steps(10);
  c.set_seed(5);
  return c;
}

// The mesh's sizes, and how many ranks that makes.
struct Axes {
  int32_t dp = 1, tp = 1, pp = 1, cp = 1, ep = 1, etp = 1;
  int64_t world() const { return int64_t{dp} * tp * pp * cp; }
  std::string Name() const { return absl::StrCat("dp", dp, "_tp", tp, "_pp", pp, "_cp", cp, "_ep", ep, "_etp", etp); }
};

inline config::Config WithAxes(config::Config c, const Axes& a) {
  auto* m = c.mutable_mesh();
  m->set_dp(a.dp);
  m->set_tp(a.tp);
  m->set_pp(a.pp);
  m->set_cp(a.cp);
  m->set_ep(a.ep);
  m->set_etp(a.etp);
  c.set_ranks(static_cast<int32_t>(a.world()));
  return c;
}

// Of a global batch.
struct BatchShape { int64_t sequences, seq; };

inline Text TextOf(config::Config c, const BatchShape& shape, uint64_t seed) {
  c.mutable_train()->set_seq_len(shape.seq);
  return RandomText(c, shape.sequences, seed);
}

// A data-parallel coordinate's part of a global batch.
inline Batch ShareOf(const Text& text, int64_t sequences, const Model& model) {
  return text.Part(ShareBegin(sequences, model.dp_size(), model.dp_rank()), ShareSize(sequences, model.dp_size(), model.dp_rank()));
}

struct Trained {
  std::vector<StepStats> steps;
  std::vector<std::vector<int64_t>> counts;               // of experts, per step
  std::map<std::string, std::vector<double>> params;      // whole tensors by global name
};

// Writes a block into its tensor; copies on several ranks must be the same bits.
inline absl::Status Put(const Param& param, const ParamPiece& piece, std::map<std::string, std::vector<double>>* params, std::map<std::string, std::vector<bool>>* known) {
  const TensorView v = PieceView(param.value, piece).Flat();
  int64_t size = 1;
  for (int64_t d : piece.global_shape) size *= d;
  std::vector<double>& whole = (*params)[piece.name];
  std::vector<bool>& written = (*known)[piece.name];
  whole.resize(size);
  written.resize(size);
  for (int64_t i = 0; i < v.size(); ++i) {
    int64_t rest = i, at = 0, scale = 1;
    for (int d = static_cast<int>(piece.shape.size()) - 1; d >= 0; --d) {
      at += (piece.begin[d] + rest % piece.shape[d]) * scale;
      scale *= piece.global_shape[d];
      rest /= piece.shape[d];
    }
    const double value = v.dtype() == DType::kF64 ? v.as<double>()[i] : static_cast<double>(v.as<float>()[i]);
    if (written[at] && whole[at] != value) return Internal(piece.name, " element ", at, " differs between ranks: ", whole[at], " and ", value);
    whole[at] = value;
    written[at] = true;
  }
  return absl::OkStatus();
}

// What a run trains on: `steps` steps, the first of number `first`, batches of `shapes` in turn (none: the configuration's);
// `before` and `after`, when set, run on every rank.
struct Course {
  int steps = 1, first = 0;
  std::vector<BatchShape> shapes;
  std::function<absl::Status(RankWorld*)> before, after;
};

// Trains on the configuration's mesh; the same global batches for every mesh.
inline absl::StatusOr<Trained> TrainCourse(const config::Config& c, int64_t world, const DeviceMaker& device, const Course& course, const CommunicatorWrapper& wrap = nullptr) {
  Trained out;
  std::mutex mutex;
  std::map<std::string, std::vector<bool>> known;
  std::vector<BatchShape> shapes = course.shapes;
  if (shapes.empty()) shapes = {{c.train().global_batch(), c.train().seq_len()}};
  MOE_RETURN_IF_ERROR(RunWorld(c, world, device, [&](RankWorld* w) -> absl::Status {
    if (course.before) MOE_RETURN_IF_ERROR(course.before(w));
    for (int step = 0; step < course.steps; ++step) {
      const int number = course.first + step;
      const BatchShape shape = shapes[number % shapes.size()];
      const Text text = TextOf(c, shape, 100 + number);
      StepStats s;
      MOE_RETURN_IF_ERROR(w->model->ForwardBackward(ShareOf(text, shape.sequences, *w->model), &s));
      MOE_RETURN_IF_ERROR(w->model->OptimizerStep(&s));
      std::lock_guard<std::mutex> lock(mutex);
      if (static_cast<int>(out.steps.size()) == step) {
        out.steps.push_back(s);
        out.counts.push_back(w->model->expert_count());
      }
      // Every rank reports the same.
      const StepStats& first = out.steps[step];
      if (s.loss != first.loss || s.grad_norm != first.grad_norm || s.aux_loss != first.aux_loss || w->model->expert_count() != out.counts[step])
        return Internal("step ", step, ": rank ", w->rank, " reports loss ", s.loss, ", norm ", s.grad_norm, "; another ", first.loss, ", ", first.grad_norm);
    }
    if (course.after) MOE_RETURN_IF_ERROR(course.after(w));
    std::lock_guard<std::mutex> lock(mutex);
    for (const auto& [param, piece] : w->model->pieces()) MOE_RETURN_IF_ERROR(Put(*param, *piece, &out.params, &known));
    return absl::OkStatus();
  }, wrap));
  for (const auto& [name, written] : known)
    for (size_t i = 0; i < written.size(); ++i)
      if (!written[i]) return Internal(name, " element ", i, " is on no rank");
  return out;
}

inline absl::StatusOr<Trained> TrainOn(const config::Config& c, int64_t world, const DeviceMaker& device, int steps, const CommunicatorWrapper& wrap = nullptr) {
  Course course;
  course.steps = steps;
  return TrainCourse(c, world, device, course, wrap);
}

// Largest difference in relation to the largest value.
inline double RelativeDifference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = a.size() == b.size() ? 0 : 1e30, scale = 1e-30;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    most = std::max(most, std::abs(a[i] - b[i]));
    scale = std::max(scale, std::abs(b[i]));
  }
  return most / scale;
}

// The contract: losses, norms and parameters to `tolerance`, counts exactly.
inline void ExpectSame(const Trained& got, const Trained& want, double tolerance, const std::string& what) {
  ASSERT_EQ(got.steps.size(), want.steps.size()) << what;
  for (size_t s = 0; s < got.steps.size(); ++s) {
    const auto near = [&](const char* name, double a, double b) { EXPECT_NEAR(a, b, tolerance * std::abs(b)) << what << " " << name << " of step " << s; };
    near("loss", got.steps[s].loss, want.steps[s].loss);
    near("aux loss", got.steps[s].aux_loss, want.steps[s].aux_loss);
    near("z loss", got.steps[s].z_loss, want.steps[s].z_loss);
    near("gradient norm", got.steps[s].grad_norm, want.steps[s].grad_norm);
    EXPECT_EQ(got.steps[s].tokens, want.steps[s].tokens) << what;
    EXPECT_EQ(got.counts[s], want.counts[s]) << what << " step " << s;
  }
  ASSERT_EQ(got.params.size(), want.params.size()) << what;
  for (const auto& [name, value] : want.params) {
    ASSERT_EQ(got.params.count(name), 1u) << what << " " << name;
    EXPECT_LE(RelativeDifference(got.params.at(name), value), tolerance) << what << " " << name;
  }
}

}  // namespace moe
#endif  // MOE_TESTS_ENGINE_PARALLEL_RUN_H_
