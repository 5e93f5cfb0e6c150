// tests/golden/mixtral_tiny: a real Hugging Face Mixtral. Logits, routing, losses, every gradient, ten SGD and ten AdamW steps, in
// float64 to the last digits of the data and in float32 on the CPU device to the tolerances of its README; on one rank and on ranks
// that share experts and batch.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <mutex>
#include <numeric>

#include "absl/strings/str_replace.h"
#include "core/checkpoint/safetensors.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "core/model/model_chunk.h"
#include "tests/engine/rank_world.h"

namespace moe {
namespace {

constexpr char kFolder[] = "tests/golden/mixtral_tiny/";
constexpr int64_t kBatch = 2, kSeq = 16, kVocab = 97;

std::string HfName(const std::string& ours) {
  if (ours == "embedding.weight") return "model.embed_tokens.weight";
  if (ours == "head.weight") return "lm_head.weight";
  return "model." + absl::StrReplaceAll(ours, {{".attention_norm.", ".input_layernorm."}, {".ffn_norm.", ".post_attention_layernorm."}, {".attention.q.", ".self_attn.q_proj."},
                                               {".attention.k.", ".self_attn.k_proj."}, {".attention.v.", ".self_attn.v_proj."}, {".attention.o.", ".self_attn.o_proj."}, {".moe.", ".block_sparse_moe."}});
}

config::Config TinyMixtral(bool f64) {
  config::Config c;
  auto* m = c.mutable_model();
  m->set_vocab_size(kVocab);
  m->set_num_layers(2);
  m->set_d_model(32);
  m->set_num_heads(4);
  m->set_num_kv_heads(2);
  m->set_num_global_experts(4);
  m->set_top_k(2);
  m->set_d_hidden(48);
  m->set_rope_theta(1e6);
  m->set_norm_eps(1e-5);
  m->set_dtype(f64 ? "float64" : "float32");
  c.mutable_train()->set_seq_len(kSeq);
  c.mutable_gate()->set_aux_loss("hf");
  c.mutable_gate()->set_aux_loss_coef(0.02);
  c.mutable_gate()->set_z_loss_coef(0);
  c.set_steps(10);
  return c;
}

config::Config WithOptimizer(config::Config c, const std::string& kind, const nlohmann::json& golden) {
  auto* o = c.mutable_optimizer();
  o->set_kind(kind);
  if (kind == "sgd") {
    o->set_lr(golden["spec"]["train"]["sgd_lr"]);
    o->set_schedule("constant");
    o->set_warmup_steps(0);
    o->set_weight_decay(0);
    o->set_clip_norm(0);
  } else {
    o->set_lr(golden["spec"]["train"]["adamw_lr"]);
    o->set_warmup_steps(3);
    o->set_decay_steps(10);
    o->set_weight_decay(0.1);
    o->set_clip_norm(1);
  }
  return c;
}

struct Golden {
  std::unique_ptr<SafetensorsReader> weights, data;
  nlohmann::json json;
};

Golden Open() {
  Golden g;
  g.weights = std::move(SafetensorsReader::Open(std::string(kFolder) + "model.safetensors")).value();
  g.data = std::move(SafetensorsReader::Open(std::string(kFolder) + "golden.safetensors")).value();
  std::ifstream f(std::string(kFolder) + "golden.json");
  g.json = nlohmann::json::parse(f);
  return g;
}

absl::Status SetPiece(const TensorView& view, const std::vector<double>& values) {
  const TensorView f = view.Flat();
  if (f.size() != static_cast<int64_t>(values.size())) return Internal("sizes differ");
  for (int64_t i = 0; i < f.size(); ++i) {
    if (f.dtype() == DType::kF64) f.as<double>()[i] = values[i];
    else f.as<float>()[i] = static_cast<float>(values[i]);
  }
  return absl::OkStatus();
}

std::vector<double> Doubles(const TensorView& v) {
  const TensorView f = v.Flat();
  std::vector<double> out(f.size());
  for (int64_t i = 0; i < f.size(); ++i) out[i] = f.dtype() == DType::kF64 ? f.as<double>()[i] : static_cast<double>(f.as<float>()[i]);
  return out;
}

absl::Status LoadHf(const Golden& g, Model* m) {
  for (const auto& [param, piece] : m->pieces()) {
    MOE_ASSIGN_OR_RETURN(std::vector<double> v, g.weights->ReadDoubles(HfName(piece->name)));
    MOE_RETURN_IF_ERROR(SetPiece(PieceView(param->value, *piece), v));
  }
  return absl::OkStatus();
}

// Hugging Face's labels are not shifted: position t predicts labels[t + 1].
Text GoldenText(const Golden& g, const std::string& prefix, int64_t step) {
  Text t;
  t.seq = kSeq;
  const auto ids = g.data->ReadInts(prefix + "input_ids").value(), labels = g.data->ReadInts(prefix + "labels").value();
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t s = 0; s < kSeq; ++s) {
      const int64_t i = (step * kBatch + b) * kSeq + s;
      t.ids.push_back(static_cast<int32_t>(ids[i]));
      t.labels.push_back(s + 1 < kSeq ? static_cast<int32_t>(labels[i + 1]) : -100);
    }
  }
  return t;
}

double Error(const std::vector<double>& got, const std::vector<double>& want) {
  EXPECT_EQ(got.size(), want.size());
  double most = 0, scale = 1e-300;
  for (size_t i = 0; i < want.size(); ++i) {
    most = std::max(most, std::abs(got[i] - want[i]));
    scale = std::max(scale, std::abs(want[i]));
  }
  return most / scale;
}

std::unique_ptr<Device> MakeDevice(bool f64) { return f64 ? MakeReferenceDevice() : std::move(MakeCpuDevice(2)).value(); }

class MixtralTest : public testing::TestWithParam<bool> {
 protected:
  bool f64() const { return GetParam(); }
  double Pick(double in_f64, double in_f32) const { return f64() ? in_f64 : in_f32; }
};

TEST_P(MixtralTest, LogitsAndRouting) {
  const Golden g = Open();
  auto device = MakeDevice(f64());
  const auto modules = MakeDefaultRegistry();
  const config::Config c = TinyMixtral(f64());
  const auto placement = Placement::Make(1, {0, 0, 0, 0});
  auto chunk = ModelChunk::Make(c, *PlaceLayers(c, 1)->begin(), *placement, Parallel(), *modules);
  ASSERT_TRUE(chunk.ok());
  ParamStore store(device.get(), f64() ? DType::kF64 : DType::kF32);
  ASSERT_TRUE((*chunk)->DeclareParams(&store, nullptr).ok());
  ASSERT_TRUE(store.Materialize(1).ok());
  for (Param& p : store.params())
    for (const ParamPiece& q : p.pieces) ASSERT_TRUE(SetPiece(PieceView(p.value, q), *g.weights->ReadDoubles(HfName(q.name))).ok());
  Arena arena(device.get());
  ModuleContext ctx;
  ctx.device = device.get();
  ctx.arena = &arena;
  ChunkPass pass;
  RotaryCache rotary(device.get(), store.dtype(), c);
  RoutingSums sums(2, 4);
  const Text text = GoldenText(g, "", 0);
  pass.layout = TokenLayout(text.Part(0, kBatch), Parallel());
  ASSERT_TRUE((*chunk)->Forward(ctx, &rotary, true, &pass, &sums).ok());
  std::vector<int32_t> rows(kBatch * kSeq);
  std::iota(rows.begin(), rows.end(), 0);
  TensorView logits;
  ASSERT_TRUE((*chunk)->Logits(ctx, pass, rows, &logits).ok());
  EXPECT_LT(Error(Doubles(logits), *g.data->ReadDoubles("logits")), Pick(1e-7, 1e-5));
  for (int n = 0; n < 2; ++n) {
    const Routing& r = pass.layers[n].moe.routing;
    const std::string router = absl::StrCat("router.", n, ".");
    EXPECT_LT(Error(Doubles(r.logits_TE), *g.data->ReadDoubles(router + "logits")), Pick(1e-7, 1e-5));
    EXPECT_LT(Error(Doubles(r.weights_TK), *g.data->ReadDoubles(router + "topk_weights")), Pick(1e-7, 1e-5));
    const auto ids = *g.data->ReadInts(router + "topk_ids");
    for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(r.ids_TK.Flat().as<int32_t>()[i], ids[i]) << i;
  }
}

TEST_P(MixtralTest, LossesAndEveryGradient) {
  const Golden g = Open();
  auto lone = MakeLone(TinyMixtral(f64()), MakeDevice(f64()));
  ASSERT_TRUE(lone.ok() && LoadHf(g, lone->model.get()).ok());
  StepStats s;
  ASSERT_TRUE(lone->model->ForwardBackward(GoldenText(g, "", 0).Part(0, kBatch), &s).ok());
  const double tolerance = Pick(1e-10, 1e-6);
  EXPECT_NEAR(s.loss, g.json["losses"]["lm"].get<double>(), tolerance * s.loss);
  EXPECT_NEAR(s.aux_loss, g.json["losses"]["aux"].get<double>(), tolerance * s.aux_loss);
  EXPECT_NEAR(s.total_loss, g.json["losses"]["total"].get<double>(), tolerance * s.total_loss);
  size_t checked = 0;
  for (const auto& [param, piece] : lone->model->pieces()) {
    EXPECT_LT(Error(Doubles(PieceView(param->grad, *piece)), *g.data->ReadDoubles("grad." + HfName(piece->name))), Pick(1e-7, 2e-5)) << piece->name;
    ++checked;
  }
  EXPECT_EQ(checked, g.weights->tensors().size());
}

struct Layout { int64_t world, ep, micro_batch; };

// Ten steps on `layout`; every number of the golden run.
void TrainAndCompare(const std::string& kind, bool f64, const Layout& layout) {
  const Golden g = Open();
  config::Config c = WithOptimizer(TinyMixtral(f64), kind, g.json);
  c.mutable_train()->set_micro_batch(layout.micro_batch);
  const nlohmann::json& run = g.json["train_" + kind];
  std::mutex mutex;
  std::map<std::string, std::vector<double>> params;
  const absl::Status s = RunWorld(c, layout.world, layout.ep, [&] { return MakeDevice(f64); }, [&](RankWorld* w) -> absl::Status {
    {
      std::lock_guard<std::mutex> lock(mutex);
      MOE_RETURN_IF_ERROR(LoadHf(g, w->model.get()));
    }
    for (int step = 0; step < 10; ++step) {
      Text text;
      {
        std::lock_guard<std::mutex> lock(mutex);
        text = GoldenText(g, "train.", step);
      }
      const int64_t begin = kBatch * w->rank / w->world, end = kBatch * (w->rank + 1) / w->world;
      StepStats st;
      MOE_RETURN_IF_ERROR(w->model->ForwardBackward(text.Part(begin, end - begin), &st));
      MOE_RETURN_IF_ERROR(w->model->OptimizerStep(&st));
      std::lock_guard<std::mutex> lock(mutex);
      const auto near = [&](const char* what, double got, double tolerance) {
        const double want = run[what][step].get<double>();
        EXPECT_NEAR(got, want, tolerance * want) << kind << " " << what << " step " << step << " rank " << w->rank;
      };
      near("lr", st.lr, 1e-12);
      near("loss", st.total_loss, f64 ? 1e-10 : 1e-5);
      near("lm_loss", st.loss, f64 ? 1e-10 : 1e-5);
      near("aux_loss", st.aux_loss, f64 ? 1e-10 : 1e-5);
      near("grad_norm", st.grad_norm, f64 ? 1e-9 : 2e-5);
    }
    std::lock_guard<std::mutex> lock(mutex);
    for (const auto& [param, piece] : w->model->pieces()) params[HfName(piece->name)] = Doubles(PieceView(param->value, *piece));
    return absl::OkStatus();
  });
  ASSERT_TRUE(s.ok()) << s;
  ASSERT_EQ(params.size(), run["final_l2"].size());
  int far = 0, stored = 0;
  for (const auto& [name, value] : params) {
    double l2 = 0;
    for (double v : value) l2 += v * v;
    EXPECT_NEAR(std::sqrt(l2), run["final_l2"][name].get<double>(), (f64 ? 1e-9 : 2e-5) * std::sqrt(l2)) << name;
    const std::string key = "train." + kind + ".param." + name;
    if (!g.data->tensors().count(key)) continue;
    ++stored;
    const auto want = *g.data->ReadDoubles(key);
    const double bound = f64 ? 1e-7 : kind == "sgd" ? 1e-5 : 5e-4;
    EXPECT_LT(Error(value, want), bound) << name;
    double scale = 0;
    for (double v : want) scale = std::max(scale, std::abs(v));
    for (size_t i = 0; i < want.size(); ++i) far += std::abs(value[i] - want[i]) > 1e-5 * scale;
  }
  EXPECT_GE(stored, 5);
  EXPECT_LE(far, kind == "sgd" || f64 ? 0 : 20);
}

TEST_P(MixtralTest, TenSgdSteps) { TrainAndCompare("sgd", f64(), {1, 1, 0}); }
TEST_P(MixtralTest, TenAdamWSteps) { TrainAndCompare("adamw", f64(), {1, 1, 0}); }
TEST_P(MixtralTest, TenSgdStepsInMicroBatches) { TrainAndCompare("sgd", f64(), {1, 1, 1}); }
TEST_P(MixtralTest, TenSgdStepsOnTwoRanksThatShareExperts) { TrainAndCompare("sgd", f64(), {2, 2, 0}); }
TEST_P(MixtralTest, TenAdamWStepsOnTwoRanksThatShareExperts) { TrainAndCompare("adamw", f64(), {2, 2, 0}); }
// Four ranks for two sequences: two of them have no token in any step.
TEST_P(MixtralTest, TenSgdStepsOnFourRanksTwoOfThemEmpty) { TrainAndCompare("sgd", f64(), {4, 4, 0}); }

INSTANTIATE_TEST_SUITE_P(DTypes, MixtralTest, testing::Bool(), [](const auto& info) { return info.param ? "float64" : "float32"; });

}  // namespace
}  // namespace moe
