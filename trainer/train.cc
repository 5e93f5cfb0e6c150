// moe train: the whole run from top to bottom.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/commands.h"
#include "trainer/data.h"
#include "trainer/progress.h"
#include "trainer/run_folder.h"
#include "trainer/session.h"

namespace moe::trainer {
namespace {

using Clock = std::chrono::steady_clock;
double Since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

Result Describe(Session* s, const moe_config* config) {
  char *model = nullptr, *engine = nullptr;
  MOE_TRY(Check(moe_model_describe(s->model(), &model)));
  const Json m = Json::parse(Take(model));
  MOE_TRY(Check(moe_engine_describe(s->engine(), &engine)));
  const Json e = Json::parse(Take(engine));
  if (s->leader()) {
    std::printf("%s", ModelTable(m, e, config).c_str());
    std::fflush(stdout);
  }
  return {};
}

// Routes to each expert of each MoE layer in the last step, and the worst layer's max over mean.
Json ExpertCounts(moe_model* model, int64_t experts, double* imbalance) {
  const int64_t layers = moe_model_num_moe_layers(model);
  std::vector<int64_t> count(layers * experts);
  moe_status_destroy(moe_model_expert_count(model, count.data(), static_cast<int64_t>(count.size())));
  Json all = Json::array();
  *imbalance = layers > 0 ? 0 : 1;
  for (int64_t l = 0; l < layers; ++l) {
    const std::vector<int64_t> row(count.begin() + l * experts, count.begin() + (l + 1) * experts);
    int64_t sum = 0, most = 0;
    for (int64_t c : row) sum += c, most = std::max(most, c);
    if (sum > 0) *imbalance = std::max(*imbalance, static_cast<double>(most) * static_cast<double>(experts) / static_cast<double>(sum));
    all.push_back(row);
  }
  return all;
}

class Run {
 public:
  Run(const moe_config* config, Session* session, const Corpus& corpus)
      : config_(config), s_(session), corpus_(corpus), folder_(config), steps_(GetInt(config, "steps")), seq_(GetInt(config, "train.seq_len")), batch_(GetInt(config, "train.global_batch")),
        experts_(GetInt(config, "model.num_global_experts")) {}

  Result Go();

 private:
  Result Resume();
  Result Step(int64_t step, Progress* progress);
  Result Save(int64_t step, Progress* progress);
  Result Validate(int64_t step, int64_t sequences, Progress* progress);
  Result Finish(Progress* progress);

  const moe_config* config_;
  Session* s_;
  const Corpus& corpus_;
  RunFolder folder_;
  int64_t steps_, seq_, batch_, experts_;
  int64_t saved_ = -1;
  double val_loss_ = NAN;
};

Result Run::Resume() {
  if (!GetBool(config_, "resume")) return {};
  // All ranks read the newest checkpoint that is whole; a damaged one is an error that names it, never skipped in silence.
  const int64_t step = folder_.Checkpoints().back();
  char* user = nullptr;
  MOE_TRY(CheckRunning(moe_model_load(s_->model(), folder_.CheckpointPath(step).c_str(), 0, &user)));
  const Json state = Json::parse(Take(user), nullptr, false);
  const auto same = [&](const char* path) { return !state.is_object() || !state.contains(path) || state[path] == GetText(config_, path); };
  for (const char* path : {"seed", "train.seq_len", "train.global_batch", "data.path", "data.val_fraction"})
    if (!same(path) && s_->leader())
      std::fprintf(stderr, "moe: warning: %s is %s now and was %s before step %lld: the run will differ from one that never stopped\n", path, GetText(config_, path).c_str(), state[path].get<std::string>().c_str(), static_cast<long long>(step));
  saved_ = step;
  return {};
}

Result Run::Save(int64_t step, Progress* progress) {
  if (saved_ == step) return {};
  Json state;
  for (const char* path : {"seed", "train.seq_len", "train.global_batch", "data.path", "data.val_fraction"}) state[path] = GetText(config_, path);
  const Clock::time_point start = Clock::now();
  MOE_TRY(CheckRunning(moe_model_save(s_->model(), folder_.CheckpointPath(step).c_str(), state.dump().c_str())));
  saved_ = step;
  if (s_->leader()) folder_.Prune(GetInt(config_, "checkpoint.keep"));
  progress->Say(absl::StrFormat("checkpoint of step %d in %s (%.1f s)", step, folder_.CheckpointPath(step), Since(start)));
  return {};
}

Result Run::Validate(int64_t step, int64_t sequences, Progress* progress) {
  if (corpus_.held_out_bytes() == 0) return {};
  MOE_TRY(s_->Evaluate(corpus_, sequences, &val_loss_));
  progress->Say(absl::StrFormat("step %d  held-out loss %.4f nats per byte", step, val_loss_));
  return s_->leader() ? folder_.Append({{"step", step}, {"val_loss", val_loss_}, {"val_sequences", sequences}}) : Result();
}

Result Run::Step(int64_t step, Progress* progress) {
  const Clock::time_point start = Clock::now();
  const Share mine = ShareOf(batch_, s_->dp_rank(), s_->dp_size());
  const int64_t first = step * batch_ + mine.begin;
  const Sequences data = corpus_.Train(first, mine.end - mine.begin);
  const moe_batch b = ToBatch(data, seq_, first);
  moe_step_stats st;
  MOE_INIT(st);
  MOE_TRY(CheckRunning(moe_model_train_step(s_->model(), &b, &st)));
  if (!s_->leader()) return {};
  const double rate = static_cast<double>(st.tokens) / Since(start);
  double imbalance = 1;
  Json line = {{"step", st.step}, {"loss", st.loss}, {"aux_loss", st.aux_loss}, {"z_loss", st.z_loss}, {"grad_norm", st.grad_norm}, {"lr", st.lr}, {"tokens", st.tokens}, {"tokens_per_s", std::round(rate)},
               {"dropped_routes", st.dropped_routes}};
  line["expert_count"] = ExpertCounts(s_->model(), experts_, &imbalance);
  progress->Step(step, st.loss, rate, imbalance);
  return folder_.Append(line);
}

Result Run::Finish(Progress* progress) {
  MOE_TRY(Validate(steps_, GetInt(config_, "eval.final_sequences"), progress));
  const int64_t tokens = GetInt(config_, "generate.tokens");
  if (tokens > 0) {
    const std::string prompt = GetText(config_, "generate.prompt");
    std::string text;
    MOE_TRY(s_->Generate(prompt, tokens, GetDouble(config_, "generate.temperature"), std::strtoull(GetText(config_, "seed").c_str(), nullptr, 10), &text));
    progress->Say(absl::StrCat("sample (temperature ", GetText(config_, "generate.temperature"), "):\n", Printable(prompt + text)));
  }
  if (!s_->leader()) return {};
  folder_.WritePlot();
  const std::string run = GetText(config_, "run");
  progress->Say(absl::StrCat(corpus_.held_out_bytes() > 0 ? absl::StrFormat("held-out loss: %.4f nats per byte\n", val_loss_) : "", "checkpoint: ", folder_.CheckpointPath(saved_), "\nmetrics:    ", folder_.path(), "/metrics.jsonl, plot loss.svg",
                             "\nnext:       moe generate ", run, " 'some text'   |   moe train run=", run, " resume=true steps=", 2 * steps_));
  return {};
}

Result Run::Go() {
  MOE_TRY(Resume());
  const int64_t begin = moe_model_step(s_->model());
  if (s_->leader()) MOE_TRY(folder_.OpenMetrics(begin));
  Progress progress(s_->leader(), begin, steps_, GetInt(config_, "log.every"));
  if (begin > 0) progress.Say(absl::StrFormat("going on from step %d", begin));
  const int64_t decay = GetInt(config_, "optimizer.decay_steps");
  if (decay > 0 && decay < steps_ && GetText(config_, "optimizer.schedule") == "cosine")
    progress.Say(absl::StrFormat("note: the learning rate reaches its floor at step %d (optimizer.decay_steps) and stays there to step %d", decay, steps_));
  const int64_t eval_every = GetInt(config_, "eval.every"), save_every = GetInt(config_, "checkpoint.every");
  for (int64_t step = begin; step < steps_; ++step) {
    MOE_TRY(Step(step, &progress));
    const int64_t done = step + 1;
    bool stop = false;
    MOE_TRY(s_->AgreeToStop(&stop));
    if (stop) {
      MOE_TRY(Save(done, &progress));
      progress.Say(absl::StrCat("stopped at step ", done, "; go on with: moe train run=", GetText(config_, "run"), " resume=true"));
      MOE_TRY(s_->Close());
      return {130, "", false};
    }
    if (save_every > 0 && done % save_every == 0) MOE_TRY(Save(done, &progress));
    if (eval_every > 0 && done % eval_every == 0 && done < steps_) MOE_TRY(Validate(done, GetInt(config_, "eval.sequences"), &progress));
  }
  MOE_TRY(Save(std::max(begin, steps_), &progress));
  MOE_TRY(Finish(&progress));
  return s_->Close();
}

}  // namespace

Result Train(const Arguments& a) {
  if (a.Has("--help")) return PrintTrainHelp();
  MOE_TRY(CheckFlags(a, {}));
  if (a.words.size() > 1) return Result::Misuse(absl::StrCat("moe train takes one configuration file and field=value pairs; '", a.words[1], "' is neither"));
  Config config;
  MOE_TRY(MakeConfig(a.words.empty() ? "" : a.words[0], a, &config));
  MOE_TRY(AdoptWorld(a, config.get()));
  MOE_TRY(Check(moe_config_validate(config.get())));
  Corpus corpus;
  MOE_TRY(Corpus::Open(config.get(), &corpus));
  // The run's folder is made once: by the parent, or by rank 0 of a launcher's job.
  if (!IsStartedRank(a)) {
    MOE_TRY(RunFolder::Prepare(config.get()));
    std::printf("run %s: %s steps of %s sequences x %s tokens of %s (%s bytes, %s held out)\n", GetText(config.get(), "run").c_str(), GetText(config.get(), "steps").c_str(),
                GetText(config.get(), "train.global_batch").c_str(), GetText(config.get(), "train.seq_len").c_str(), corpus.name().c_str(), Thousands(corpus.train_bytes() + corpus.held_out_bytes()).c_str(),
                Thousands(corpus.held_out_bytes()).c_str());
    std::fflush(stdout);
  }
  return RunRanks(a, config.get(), [&](const RankPlace& place) -> Result {
    const bool foreign = IsStartedRank(a) && !a.Has("--internal-rank");
    if (foreign) {
      if (GetText(config.get(), "run").empty()) return Result::Misuse("under torchrun or mpirun every rank needs the same run=NAME");
      if (place.leader()) MOE_TRY(RunFolder::Prepare(config.get()));
    }
    std::unique_ptr<Session> session;
    MOE_TRY(Session::Open(config.get(), place, &session, RunFolder(config.get()).path() + "/flight"));
    MOE_TRY(session->End(Describe(session.get(), config.get())));
    return session->End(Run(config.get(), session.get(), corpus).Go());
  });
}

}  // namespace moe::trainer
