#include <cstdio>

#include "absl/strings/str_cat.h"
#include "trainer/commands.h"

namespace moe::trainer {

void PrintUsage() {
  std::printf(
      "moe: training of Mixture-of-Experts language models\n"
      "\n"
      "  moe train [CONFIG] [field=value ...]   train; every field has a default: moe train --help\n"
      "  moe eval RUN [field=value ...]         held-out loss of a run's newest checkpoint\n"
      "  moe generate RUN [PROMPT]              text from a run's newest checkpoint\n"
      "  moe plan [CONFIG] [field=value ...]    layout, schedule, memory and deadlocks of any number of ranks: moe help plan\n"
      "  moe doctor [RUN]                       who waits for whom in a run that stands still or has failed; default: the last one\n"
      "  moe trace [RUN] [--out=FILE]           its last operations for Perfetto\n"
      "  moe info                               CPU, kernels, UCX and CUDA found or not\n"
      "  moe bench layer|train [--against]      speed of one MoE layer, of training; beside PyTorch's\n"
      "  moe bench pipeline [--predict]         bubbles against their formulas, plan times; predicted step times\n"
      "  moe test [TARGETS]                     the tests (through the start script ./moe)\n"
      "\n"
      "CONFIG is protobuf text or JSON. Examples:\n"
      "  moe train                              the default model on the King James Bible, 2 ranks over UCX\n"
      "  moe train ranks=4 steps=50 run=a data.path=book.txt model.num_global_experts=16\n"
      "  moe train run=a resume=true steps=100  goes on where run a ended\n"
      "Exit codes: 0 well, 1 failed, 2 misused, 3 a plan that hangs, 130 interrupted (Ctrl-C saves; a second one ends at once).\n");
}

Result PrintTrainHelp() {
  char* raw = nullptr;
  MOE_TRY(Check(moe_config_describe(&raw)));
  std::printf("moe train [CONFIG] [field=value ...]\n\nFields, their defaults and what they mean:\n");
  std::string section;
  for (const Json& f : Json::parse(Take(raw))) {
    const std::string path = f["path"];
    const std::string head = path.find('.') == std::string::npos ? "" : path.substr(0, path.find('.'));
    if (head != section) std::printf("\n");
    section = head;
    std::string limits;
    if (f.contains("allowed")) limits = absl::StrCat(", one of ", f["allowed"].get<std::string>());
    if (f.contains("min")) absl::StrAppend(&limits, ", from ", f["min"].get<double>());
    if (f.contains("max")) absl::StrAppend(&limits, ", up to ", f["max"].get<double>());
    const std::string value = f.contains("default") ? f["default"].get<std::string>() : std::string("unset");
    std::printf("  %s=%s  (%s%s)\n", path.c_str(), value.empty() ? "\"\"" : value.c_str(), f["type"].get<std::string>().c_str(), limits.c_str());
    // The comment, wrapped.
    std::string line = "     ", doc = f["doc"];
    for (size_t at = 0; at < doc.size();) {
      const size_t space = std::min(doc.find(' ', at), doc.size());
      const std::string word = doc.substr(at, space - at);
      if (line.size() + word.size() > 110) {
        std::printf("%s\n", line.c_str());
        line = "     ";
      }
      absl::StrAppend(&line, " ", word);
      at = space + 1;
    }
    if (line.size() > 5) std::printf("%s\n", line.c_str());
  }
  return {};
}

Result AdoptWorld(const Arguments& a, moe_config* config) {
  const int64_t world = ForeignWorld();
  if (world == 0 || a.Has("--internal-rank")) return {};
  for (const auto& [path, value] : a.fields)
    if (path == "ranks" && value != absl::StrCat(world)) return Result::Misuse(absl::StrCat("ranks is ", value, ", but the launcher has started ", world, " ranks; leave `ranks` out or start as many"));
  return Check(moe_config_set(config, "ranks", absl::StrCat(world).c_str()));
}

}  // namespace moe::trainer
