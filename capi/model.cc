#include <algorithm>

#include "capi/internal.h"

using moe::capi::Catch;
using moe::capi::Enter;
using moe::capi::EngineState;
using moe::capi::NullArgument;
using moe::capi::ReadStruct;
using moe::capi::Several;
using moe::capi::ToString;

struct moe_model {
  std::shared_ptr<EngineState> state;
  std::unique_ptr<moe::Model> model;
};

namespace moe::capi {

void DescribeParameter(const Param& param, const ParamPiece& piece, moe_parameter* out) {
  moe_parameter p{};
  p.name = piece.name.c_str();
  p.is_expert = param.kind == ParamKind::kExpert;
  p.dtype = static_cast<int32_t>(param.value.dtype());
  p.ndim = static_cast<int32_t>(piece.shape.size());
  p.decay = param.decay;
  for (int i = 0; i < p.ndim; ++i) {
    p.shape[i] = piece.shape[i];
    p.global_shape[i] = piece.global_shape[i];
    p.begin[i] = piece.begin[i];
  }
  p.value = PieceView(param.value, piece).data();
  p.grad = PieceView(param.grad, piece).data();
  WriteStruct(p, out);
}

}  // namespace moe::capi

namespace {

absl::StatusOr<moe::Batch> ToBatch(const moe_batch* batch) {
  MOE_ASSIGN_OR_RETURN(moe_batch b, ReadStruct("batch", batch));
  moe::Batch out;
  out.ids = b.ids;
  out.labels = b.labels;
  out.batch = b.batch;
  out.seq = b.seq;
  out.first_sample = b.first_sample;
  return out;
}

void ToStats(const moe::StepStats& s, moe_step_stats* out) {
  moe_step_stats o{};
  o.step = s.step;
  o.loss = s.loss;
  o.aux_loss = s.aux_loss;
  o.z_loss = s.z_loss;
  o.total_loss = s.total_loss;
  o.grad_norm = s.grad_norm;
  o.lr = s.lr;
  o.tokens = s.tokens;
  o.dropped_routes = s.dropped_routes;
  moe::capi::WriteStruct(o, out);
}

// What the caller's struct holds already: a step is reported in two halves.
moe::StepStats FromStats(const moe_step_stats& s) {
  moe::StepStats o;
  o.step = s.step;
  o.loss = s.loss;
  o.aux_loss = s.aux_loss;
  o.z_loss = s.z_loss;
  o.total_loss = s.total_loss;
  o.grad_norm = s.grad_norm;
  o.lr = s.lr;
  o.tokens = s.tokens;
  o.dropped_routes = s.dropped_routes;
  return o;
}

template <typename F>
moe_status* WithModel(moe_model* model, F f) {
  return Catch([&]() -> absl::Status {
    if (model == nullptr) return NullArgument("model");
    return Enter(model->state, [&]() -> absl::Status { return f(model->model.get()); });
  });
}

// A call that fills moe_step_stats.
template <typename F>
moe_status* WithStats(moe_model* model, moe_step_stats* stats, F f) {
  return WithModel(model, [&](moe::Model* m) -> absl::Status {
    MOE_ASSIGN_OR_RETURN(moe_step_stats given, ReadStruct("stats", stats));
    moe::StepStats s = FromStats(given);
    MOE_RETURN_IF_ERROR(f(m, &s));
    ToStats(s, stats);
    return absl::OkStatus();
  });
}

}  // namespace

extern "C" {

moe_status* moe_model_create(moe_engine* engine, moe_model** model) {
  return Catch([&]() -> absl::Status {
    if (engine == nullptr) return NullArgument("engine");
    if (model == nullptr) return NullArgument("model");
    return Enter(engine->state, [&]() -> absl::Status {
      const std::shared_ptr<EngineState>& s = engine->state;
      moe::ModelContext c;
      c.device = s->device.get();
      c.modules = s->modules.get();
      c.world = Several(s->world);
      c.batch = Several(s->batch);
      c.ep = Several(s->ep);
      c.edp = Several(s->edp);
      c.dp_rank = s->mesh->coordinate(s->rank, moe::Axis::kDp);
      c.dp_size = s->mesh->size(moe::Axis::kDp);
      c.log = s->log;
      MOE_ASSIGN_OR_RETURN(auto made, moe::Model::Make(s->config, c));
      *model = new moe_model{s, std::move(made)};
      return absl::OkStatus();
    });
  });
}

moe_status* moe_model_describe(moe_model* model, char** json) {
  return WithModel(model, [&](moe::Model* m) -> absl::Status {
    if (json == nullptr) return NullArgument("json");
    MOE_ASSIGN_OR_RETURN(std::string text, m->Describe());
    *json = ToString(text);
    return absl::OkStatus();
  });
}

moe_status* moe_model_data_rank(const moe_model* model, int64_t* dp_rank, int64_t* dp_size) {
  return Catch([&]() -> absl::Status {
    if (model == nullptr) return NullArgument("model");
    if (dp_rank == nullptr) return NullArgument("dp_rank");
    if (dp_size == nullptr) return NullArgument("dp_size");
    *dp_rank = model->model->dp_rank();
    *dp_size = model->model->dp_size();
    return absl::OkStatus();
  });
}

moe_status* moe_model_forward_backward(moe_model* model, const moe_batch* batch, moe_step_stats* stats) {
  return WithStats(model, stats, [&](moe::Model* m, moe::StepStats* s) -> absl::Status {
    MOE_ASSIGN_OR_RETURN(moe::Batch b, ToBatch(batch));
    return m->ForwardBackward(b, s);
  });
}

moe_status* moe_model_optimizer_step(moe_model* model, moe_step_stats* stats) {
  return WithStats(model, stats, [&](moe::Model* m, moe::StepStats* s) { return m->OptimizerStep(s); });
}

moe_status* moe_model_train_step(moe_model* model, const moe_batch* batch, moe_step_stats* stats) {
  return WithStats(model, stats, [&](moe::Model* m, moe::StepStats* s) -> absl::Status {
    MOE_ASSIGN_OR_RETURN(moe::Batch b, ToBatch(batch));
    MOE_RETURN_IF_ERROR(m->ForwardBackward(b, s));
    return m->OptimizerStep(s);
  });
}

moe_status* moe_model_evaluate(moe_model* model, const moe_batch* batch, double* nll_sum, int64_t* num_labels) {
  return WithModel(model, [&](moe::Model* m) -> absl::Status {
    if (nll_sum == nullptr) return NullArgument("nll_sum");
    if (num_labels == nullptr) return NullArgument("num_labels");
    MOE_ASSIGN_OR_RETURN(moe::Batch b, ToBatch(batch));
    return m->Evaluate(b, nll_sum, num_labels);
  });
}

moe_status* moe_model_logits(moe_model* model, const moe_batch* batch, void* logits) {
  return WithModel(model, [&](moe::Model* m) -> absl::Status {
    MOE_ASSIGN_OR_RETURN(moe::Batch b, ToBatch(batch));
    if (logits == nullptr && b.batch > 0) return NullArgument("logits");
    return m->Logits(b, logits);
  });
}

moe_status* moe_model_generate(moe_model* model, const int32_t* prompt, int64_t n, int64_t num_tokens, double temperature, uint64_t seed, int32_t* tokens) {
  return WithModel(model, [&](moe::Model* m) -> absl::Status {
    if (prompt == nullptr) return NullArgument("prompt");
    if (tokens == nullptr) return NullArgument("tokens");
    if (n < 1) return moe::InvalidArgument("n is ", n, ", the prompt needs at least one token");
    return m->Generate(absl::MakeConstSpan(prompt, n), num_tokens, temperature, seed, tokens);
  });
}

int64_t moe_model_step(const moe_model* model) { return model ? model->model->step() : -1; }
int64_t moe_model_num_moe_layers(const moe_model* model) { return model ? model->model->num_moe_layers() : -1; }

moe_status* moe_model_expert_count(const moe_model* model, int64_t* expert_count, int64_t n) {
  return Catch([&]() -> absl::Status {
    if (model == nullptr) return NullArgument("model");
    const std::vector<int64_t>& count = model->model->expert_count();
    if (n != static_cast<int64_t>(count.size())) return moe::InvalidArgument("n is ", n, ", must be MoE layers x experts, which is ", count.size());
    if (expert_count == nullptr && n > 0) return NullArgument("expert_count");
    std::copy(count.begin(), count.end(), expert_count);
    return absl::OkStatus();
  });
}

moe_status* moe_model_save(moe_model* model, const char* path, const char* user_json) {
  return WithModel(model, [&](moe::Model* m) -> absl::Status {
    if (path == nullptr) return NullArgument("path");
    return m->Save(path, user_json ? user_json : "");
  });
}

moe_status* moe_model_load(moe_model* model, const char* path, int32_t weights_only, char** user_json) {
  return WithModel(model, [&](moe::Model* m) -> absl::Status {
    if (path == nullptr) return NullArgument("path");
    std::string user;
    MOE_RETURN_IF_ERROR(m->Load(path, weights_only != 0, &user));
    if (user_json) *user_json = ToString(user);
    return absl::OkStatus();
  });
}

int64_t moe_model_num_parameters(const moe_model* model) { return model ? static_cast<int64_t>(model->model->pieces().size()) : -1; }

moe_status* moe_model_parameter(moe_model* model, int64_t index, moe_parameter* parameter) {
  return Catch([&]() -> absl::Status {
    if (model == nullptr) return NullArgument("model");
    MOE_RETURN_IF_ERROR(ReadStruct("parameter", parameter).status());
    const auto& pieces = model->model->pieces();
    if (index < 0 || index >= static_cast<int64_t>(pieces.size())) return absl::OutOfRangeError(absl::StrCat("index is ", index, ", the model has ", pieces.size(), " parameters"));
    moe::capi::DescribeParameter(*pieces[index].first, *pieces[index].second, parameter);
    return absl::OkStatus();
  });
}

void moe_model_destroy(moe_model* model) { delete model; }

}  // extern "C"
