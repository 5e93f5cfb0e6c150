#include <algorithm>

#include "capi/arguments.h"
#include "capi/collective.h"
#include "capi/open_engine.h"
#include "core/model/model.h"

using moe::capi::Call;
using moe::capi::Hash;
using moe::capi::Meet;
using moe::capi::NullArgument;
using moe::capi::ReadBatch;
using moe::capi::Several;
using moe::capi::ToString;

struct moe_model final : moe::capi::Handle {
  using Handle::Handle;
  std::unique_ptr<moe::Model> model;
  int64_t vocab() const { return model->config().model().vocab_size(); }
};

namespace {

// A failure of this rank alone ends the communication of all ranks.
absl::Status RunInWorld(moe_model* m, const std::function<absl::Status()>& f) {
  if (m->state->world_size == 1) return f();
  return moe::capi::Run(m->state->rank, m->state->world_size, [&](const absl::Status& s) { m->state->transport->Abort(s); }, f);
}

absl::Status CheckPointers(std::initializer_list<std::pair<const char*, const void*>> pointers) {
  for (const auto& [name, p] : pointers)
    if (p == nullptr) return NullArgument(name);
  return absl::OkStatus();
}

// Between moe_step_stats and moe::StepStats, which name their fields alike.
template <typename From, typename To>
void CopyStats(const From& from, To* to) {
  to->step = from.step;
  to->loss = from.loss;
  to->aux_loss = from.aux_loss;
  to->z_loss = from.z_loss;
  to->total_loss = from.total_loss;
  to->grad_norm = from.grad_norm;
  to->lr = from.lr;
  to->tokens = from.tokens;
  to->dropped_routes = from.dropped_routes;
}

// A step is reported in two halves: what the caller's struct holds already stays.
template <typename F>
absl::Status WithStats(moe_model* model, const absl::Status& arguments, uint64_t fingerprint, moe_step_stats* stats, F f) {
  const absl::StatusOr<moe_step_stats> given = moe::capi::ReadStruct("stats", stats);
  MOE_RETURN_IF_ERROR(Meet(Several(model->state->world), arguments.ok() ? given.status() : arguments, "batch.seq", fingerprint));
  moe::StepStats s;
  CopyStats(*given, &s);
  MOE_RETURN_IF_ERROR(RunInWorld(model, [&] { return f(&s); }));
  moe_step_stats out{};
  CopyStats(s, &out);
  moe::capi::WriteStruct(out, stats);
  return absl::OkStatus();
}

}  // namespace

extern "C" {

moe_status* moe_model_create(moe_engine* engine, moe_model** model) {
  return Call("engine", engine, [&]() -> absl::Status {
    const std::shared_ptr<moe::capi::EngineState>& s = engine->state;
    const moe::ModelContext c = moe::capi::ContextOf(s.get());
    auto handle = std::make_unique<moe_model>(s);
    absl::StatusOr<std::unique_ptr<moe::Model>> made = NullArgument("model");
    if (model != nullptr) made = moe::Model::Make(s->config, c);   // on this rank alone
    MOE_RETURN_IF_ERROR(Meet(Several(s->world), made.status(), "arguments", 0));
    handle->model = *std::move(made);
    *model = handle.release();
    return absl::OkStatus();
  });
}

moe_status* moe_model_describe(moe_model* model, char** json) {
  return Call("model", model, [&]() -> absl::Status {
    MOE_RETURN_IF_ERROR(Meet(Several(model->state->world), CheckPointers({{"json", json}}), "arguments", 0));
    std::string text;
    MOE_RETURN_IF_ERROR(RunInWorld(model, [&]() -> absl::Status {
      MOE_ASSIGN_OR_RETURN(text, model->model->Describe());
      return absl::OkStatus();
    }));
    *json = ToString(text);
    return absl::OkStatus();
  });
}

moe_status* moe_model_data_rank(const moe_model* model, int64_t* dp_rank, int64_t* dp_size) {
  return Call("model", model, [&]() -> absl::Status {
    MOE_RETURN_IF_ERROR(CheckPointers({{"dp_rank", dp_rank}, {"dp_size", dp_size}}));
    *dp_rank = model->model->dp_rank();
    *dp_size = model->model->dp_size();
    return absl::OkStatus();
  });
}

moe_status* moe_model_forward_backward(moe_model* model, const moe_batch* batch, moe_step_stats* stats) {
  return Call("model", model, [&] {
    const absl::StatusOr<moe::Batch> b = ReadBatch(batch, model->vocab(), true);
    return WithStats(model, b.status(), b.ok() ? static_cast<uint64_t>(b->seq) << 1 : 0, stats, [&](moe::StepStats* s) { return model->model->ForwardBackward(*b, s); });
  });
}

moe_status* moe_model_optimizer_step(moe_model* model, moe_step_stats* stats) {
  return Call("model", model, [&] {
    return WithStats(model, absl::OkStatus(), 0, stats, [&](moe::StepStats* s) { return model->model->OptimizerStep(s); });
  });
}

moe_status* moe_model_train_step(moe_model* model, const moe_batch* batch, moe_step_stats* stats) {
  return Call("model", model, [&] {
    const absl::StatusOr<moe::Batch> b = ReadBatch(batch, model->vocab(), true);
    return WithStats(model, b.status(), b.ok() ? static_cast<uint64_t>(b->seq) << 1 : 0, stats, [&](moe::StepStats* s) -> absl::Status {
      MOE_RETURN_IF_ERROR(model->model->ForwardBackward(*b, s));
      return model->model->OptimizerStep(s);
    });
  });
}

moe_status* moe_model_evaluate(moe_model* model, const moe_batch* batch, double* nll_sum, int64_t* num_labels) {
  return Call("model", model, [&]() -> absl::Status {
    absl::StatusOr<moe::Batch> b = ReadBatch(batch, model->vocab(), true);
    if (const absl::Status s = CheckPointers({{"nll_sum", nll_sum}, {"num_labels", num_labels}}); !s.ok()) b = s;
    MOE_RETURN_IF_ERROR(Meet(Several(model->state->world), b.status(), "batch.seq", b.ok() ? static_cast<uint64_t>(b->seq) << 1 : 0));
    return RunInWorld(model, [&] { return model->model->Evaluate(*b, nll_sum, num_labels); });
  });
}

moe_status* moe_model_logits(moe_model* model, const moe_batch* batch, void* logits) {
  return Call("model", model, [&]() -> absl::Status {
    absl::StatusOr<moe::Batch> b = ReadBatch(batch, model->vocab(), false);
    if (b.ok() && b->batch > 0 && logits == nullptr) b = NullArgument("logits");
    MOE_RETURN_IF_ERROR(Meet(Several(model->state->world), b.status(), "batch.seq", b.ok() ? static_cast<uint64_t>(b->seq) << 1 : 0));
    return RunInWorld(model, [&] { return model->model->Logits(*b, logits); });
  });
}

moe_status* moe_model_generate(moe_model* model, const int32_t* prompt, int64_t n, int64_t num_tokens, double temperature, uint64_t seed, int32_t* tokens) {
  return Call("model", model, [&]() -> absl::Status {
    const absl::Status arguments = moe::capi::CheckGenerate(prompt, n, num_tokens, temperature, tokens, model->vocab());
    uint64_t same = 0;
    if (arguments.ok()) same = Hash(prompt, static_cast<size_t>(n) * sizeof(*prompt), Hash(&num_tokens, sizeof(num_tokens), Hash(&temperature, sizeof(temperature), Hash(&seed, sizeof(seed)))));
    MOE_RETURN_IF_ERROR(Meet(Several(model->state->world), arguments, "arguments of moe_model_generate", same));
    std::vector<int32_t> text(static_cast<size_t>(num_tokens));   // the caller's buffer stays untouched on error
    MOE_RETURN_IF_ERROR(RunInWorld(model, [&] { return model->model->Generate(absl::MakeConstSpan(prompt, static_cast<size_t>(n)), num_tokens, temperature, seed, text.data()); }));
    std::copy(text.begin(), text.end(), tokens);
    return absl::OkStatus();
  });
}

int64_t moe_model_step(const moe_model* model) { return model ? model->model->step() : -1; }
int64_t moe_model_num_moe_layers(const moe_model* model) { return model ? model->model->num_moe_layers() : -1; }

moe_status* moe_model_expert_count(const moe_model* model, int64_t* expert_count, int64_t n) {
  return Call("model", model, [&]() -> absl::Status {
    const std::vector<int64_t>& count = model->model->expert_count();
    if (n != static_cast<int64_t>(count.size()))
      return moe::InvalidArgument("n is ", n, ", must be moe_model_num_moe_layers x model.num_global_experts, which is ", count.size());
    if (expert_count == nullptr && n > 0) return NullArgument("expert_count");
    std::copy(count.begin(), count.end(), expert_count);
    return absl::OkStatus();
  });
}

// Save and load agree on their errors by themselves, and after one the model goes on: nothing is aborted.
moe_status* moe_model_save(moe_model* model, const char* path, const char* user_json) {
  return Call("model", model, [&]() -> absl::Status {
    const std::string user = user_json ? user_json : "";
    MOE_RETURN_IF_ERROR(Meet(Several(model->state->world), CheckPointers({{"path", path}}), "user_json", Hash(user.data(), user.size())));
    return model->model->Save(path, user);
  });
}

moe_status* moe_model_load(moe_model* model, const char* path, int32_t weights_only, char** user_json) {
  return Call("model", model, [&]() -> absl::Status {
    MOE_RETURN_IF_ERROR(Meet(Several(model->state->world), CheckPointers({{"path", path}}), "weights_only", weights_only != 0 ? 2 : 0));
    std::string user;
    MOE_RETURN_IF_ERROR(model->model->Load(path, weights_only != 0, &user));
    if (user_json) *user_json = ToString(user);
    return absl::OkStatus();
  });
}

int64_t moe_model_num_parameters(const moe_model* model) { return model ? static_cast<int64_t>(model->model->pieces().size()) : -1; }

moe_status* moe_model_parameter(moe_model* model, int64_t index, moe_parameter* parameter) {
  return Call("model", model, [&]() -> absl::Status {
    const auto& pieces = model->model->pieces();
    MOE_RETURN_IF_ERROR(moe::capi::ReadStruct("parameter", parameter).status());
    if (index < 0 || index >= static_cast<int64_t>(pieces.size())) return absl::OutOfRangeError(absl::StrCat("index is ", index, ", the model has ", pieces.size(), " parameters"));
    moe::capi::DescribeParameter(*pieces[index].first, *pieces[index].second, parameter);
    return absl::OkStatus();
  });
}

void moe_model_destroy(moe_model* model) { moe::capi::Destroy(model); }

}  // extern "C"
