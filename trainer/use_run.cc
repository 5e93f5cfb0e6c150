// moe eval and moe generate: what a trained run is good for.
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/commands.h"
#include "trainer/data.h"
#include "trainer/run_folder.h"
#include "trainer/session.h"

namespace moe::trainer {
namespace {

// The configuration of run `name` with the command line's fields on top; the path of its newest checkpoint.
Result OpenRun(const Arguments& a, const char* command, Config* config, std::string* checkpoint) {
  if (a.words.empty()) return Result::Misuse(absl::StrCat("moe ", command, " needs the name of a run (its folder is runs/NAME)"));
  Config given;
  MOE_TRY(MakeConfig("", a, &given));
  const std::string root = GetText(given.get(), "run_root");
  const Result loaded = MakeConfig(absl::StrCat(root, "/", a.words[0], "/config.textproto"), a, config);
  if (!loaded.ok()) return Result::Misuse(absl::StrCat("no run '", a.words[0], "' in ", root, ": ", loaded.message));
  MOE_TRY(AdoptWorld(a, config->get()));
  MOE_TRY(Check(moe_config_validate(config->get())));
  const RunFolder folder(config->get());
  const auto steps = folder.Checkpoints();
  if (steps.empty()) return Result::Misuse(absl::StrCat("run '", a.words[0], "' has no checkpoint in ", folder.path(), "/checkpoints"));
  *checkpoint = folder.CheckpointPath(steps.back());
  return {};
}

Result OpenModel(const moe_config* config, const RankPlace& place, const std::string& checkpoint, std::unique_ptr<Session>* out) {
  MOE_TRY(Session::Open(config, place, out));
  return CheckRunning(moe_model_load((*out)->model(), checkpoint.c_str(), 1, nullptr));
}

}  // namespace

Result Evaluate(const Arguments& a) {
  MOE_TRY(CheckFlags(a, {}));
  Config config;
  std::string checkpoint;
  MOE_TRY(OpenRun(a, "eval", &config, &checkpoint));
  Corpus corpus;
  MOE_TRY(Corpus::Open(config.get(), &corpus));
  if (corpus.held_out_bytes() == 0) return Result::Misuse("data.val_fraction is 0: nothing is held out");
  return RunRanks(a, config.get(), [&](const RankPlace& place) -> Result {
    std::unique_ptr<Session> s;
    MOE_TRY(OpenModel(config.get(), place, checkpoint, &s));
    double loss = 0;
    const int64_t sequences = GetInt(config.get(), "eval.final_sequences");
    MOE_TRY(s->Evaluate(corpus, sequences, &loss));
    if (s->leader()) std::printf("held-out loss: %.4f nats per byte (%s, %lld sequences)\n", loss, checkpoint.c_str(), static_cast<long long>(sequences > 0 ? std::min(sequences, corpus.num_held_out()) : corpus.num_held_out()));
    return s->Close();
  });
}

Result Generate(const Arguments& a) {
  MOE_TRY(CheckFlags(a, {}));
  Config config;
  std::string checkpoint;
  MOE_TRY(OpenRun(a, "generate", &config, &checkpoint));
  const std::string prompt = a.words.size() > 1 ? a.words[1] : GetText(config.get(), "generate.prompt");
  return RunRanks(a, config.get(), [&](const RankPlace& place) -> Result {
    std::unique_ptr<Session> s;
    MOE_TRY(OpenModel(config.get(), place, checkpoint, &s));
    std::string text;
    MOE_TRY(s->Generate(prompt, GetInt(config.get(), "generate.tokens"), GetDouble(config.get(), "generate.temperature"), std::strtoull(GetText(config.get(), "seed").c_str(), nullptr, 10), &text));
    if (s->leader()) std::printf("%s\n", Printable(prompt + text).c_str());
    return s->Close();
  });
}

namespace {

Result PrintMachine(const Config& config, bool* has_ucx) {
  char* raw = nullptr;
  MOE_TRY(Check(moe_info(GetText(config.get(), "transport.ucx_library").c_str(), &raw)));
  const Json j = Json::parse(Take(raw));
  const auto list = [](const Json& names) {
    std::string s;
    for (const Json& n : names) absl::StrAppend(&s, s.empty() ? "" : ", ", n.get<std::string>());
    return s;
  };
  std::printf("libmoe     %s\n", j["version"].get<std::string>().c_str());
  std::printf("cpu        %s, %lld cores, %.1f GiB\n", j["cpu"]["model"].get<std::string>().c_str(), static_cast<long long>(j["cpu"]["cores"].get<int64_t>()), static_cast<double>(j["cpu"]["memory_bytes"].get<int64_t>()) / (1 << 30));
  std::printf("kernels    %s\n", j["cpu"]["kernels"].get<std::string>().c_str());
  const Json& ucx = j["ucx"];
  std::printf("ucx        %s\n", ucx["found"].get<bool>() ? absl::StrCat(ucx["version"].get<std::string>(), " (", ucx["path"].get<std::string>(), ")").c_str() : absl::StrCat("not found: ", ucx["remedy"].get<std::string>()).c_str());
  const Json& cuda = j["cuda"];
  std::printf("cuda       built: no, driver: %s, nccl: %s (%s)\n", cuda["driver"].get<bool>() ? "found" : "none", cuda["nccl"].get<bool>() ? "found" : "none", cuda["remedy"].get<std::string>().c_str());
  std::printf("gates      %s\nexperts    %s\npartitions %s\n", list(j["gates"]).c_str(), list(j["experts"]).c_str(), list(j["partitions"]).c_str());
  *has_ucx = ucx["found"].get<bool>();
  std::fflush(stdout);
  return {};
}

}  // namespace

Result Info(const Arguments& a) {
  MOE_TRY(CheckFlags(a, {}));
  Config config;
  MOE_TRY(MakeConfig("", a, &config));
  bool has_ucx = true;
  if (!IsStartedRank(a)) MOE_TRY(PrintMachine(config, &has_ucx));
  // How ranks of this machine reach each other is known only to a job: start a small one.
  if (!has_ucx) return {};
  MOE_TRY(Check(moe_config_set(config.get(), "run", "info")));
  return RunRanks(a, config.get(), [&](const RankPlace& place) -> Result {
    moe_engine_options o;
    MOE_INIT(o);
    o.rank = place.rank;
    o.world_size = place.world;
    o.local_world_size = place.local_world;
    o.inproc = place.inproc;
    o.port = place.port;
    o.job_id = place.job_id.c_str();
    moe_engine* e = nullptr;
    MOE_TRY(Check(moe_engine_create(config.get(), &o, &e)));
    Engine engine(e);
    char* text = nullptr;
    MOE_TRY(Check(moe_engine_describe(e, &text)));
    const Json d = Json::parse(Take(text));
    if (place.leader())
      for (const Json& p : d["peers"])
        if (!p.get<std::string>().empty()) std::printf("lanes      %s\n", p.get<std::string>().c_str());
    return CheckRunning(moe_engine_shutdown(e));
  });
}

}  // namespace moe::trainer
