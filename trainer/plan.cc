// moe plan: what a layout would be, and whether it would hang, without starting a rank.
#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "trainer/commands.h"

namespace moe::trainer {
namespace {

constexpr int kNotFree = 3;   // exit code: a rank would wait for ever

}  // namespace

void PrintPlanHelp() {
  std::printf(
      "moe plan [CONFIG] [field=value ...] [--json] [--svg=FILE] [--measure] [--seeded-mistake=NAME]\n"
      "\n"
      "Lays out a run of any number of ranks without starting one: groups, experts, parameters and bytes of each\n"
      "rank, the schedule as a picture, bubble, bytes moved over each axis, memory peak, a predicted step time; and\n"
      "checks every rank's program of operations for ranks that would wait for each other for ever.\n"
      "\n"
      "  --json                 the plan as JSON instead of text\n"
      "  --svg=FILE             also writes the schedule as a picture\n"
      "  --measure              predicts with rates measured on this machine, whose cores all ranks share; else with\n"
      "                         assumed ones\n"
      "  --gflops=N --memory-gbs=N --latency-us=N --bandwidth-gbs=N\n"
      "                         rates of a rank to predict with: matrix products, memory, one message, network\n"
      "  --imbalance=N          routes to the busiest rank of an expert-parallel group over the mean: 1 if routing is even\n"
      "  --seeded-mistake=NAME  puts a mistake into the programs, to see it found: group_across_stages,\n"
      "                         unfused_send_recv, opposite_group_order, missing_norm_all_reduce, missing_micro_batch\n"
      "\n"
      "Exit codes: 0 free of deadlock, 2 bad input, 3 not free (the ranks and operations are named).\n"
      "Layouts of published models: trainer/configs. Fields: moe train --help. More: docs/plan.md.\n");
}

Result PlanCommand(const Arguments& a) {
  MOE_TRY(CheckFlags(a, {"--json", "--svg", "--measure", "--seeded-mistake", "--gflops", "--memory-gbs", "--latency-us", "--bandwidth-gbs", "--imbalance", "--config"}));
  // `--svg FILE` and `--config FILE` as two words: the flag is empty and the file is among the words.
  std::vector<std::string> words = a.words;
  std::string svg = a.Flag("--svg", ""), file = a.Flag("--config", "");
  const auto take_last = [&](const char* flag, std::string* value) {
    if (!a.Has(flag) || !value->empty() || words.empty()) return;
    *value = words.back();
    words.pop_back();
  };
  take_last("--svg", &svg);
  take_last("--config", &file);
  if (a.Has("--svg") && svg.empty()) return Result::Misuse("--svg needs a file: --svg=FILE");
  if (a.Has("--config") && file.empty()) return Result::Misuse("--config needs a file: --config=FILE");
  if (file.empty() && !words.empty()) {
    file = words.front();
    words.erase(words.begin());
  }
  if (!words.empty()) return Result::Misuse(absl::StrCat("'", words.front(), "' is neither field=value nor a flag; moe plan takes one CONFIG"));
  Config config;
  MOE_TRY(MakeConfig(file, a, &config));

  moe_plan_options o;
  MOE_INIT(o);
  const std::string mistake = a.Flag("--seeded-mistake", "");
  if (a.Has("--seeded-mistake") && mistake.empty()) return Result::Misuse("--seeded-mistake needs a name: moe help plan lists them");
  o.seeded_mistake = mistake.c_str();
  o.measure = a.Has("--measure") ? 1 : 0;
  MOE_TRY(PositiveFlag(a, "--gflops", &o.gflops));
  MOE_TRY(PositiveFlag(a, "--memory-gbs", &o.memory_gbs));
  MOE_TRY(PositiveFlag(a, "--latency-us", &o.latency_us));
  MOE_TRY(PositiveFlag(a, "--bandwidth-gbs", &o.bandwidth_gbs));
  MOE_TRY(PositiveFlag(a, "--imbalance", &o.imbalance));
  moe_plan* made = nullptr;
  MOE_TRY(Check(moe_plan_create(config.get(), &o, &made)));
  const Plan plan(made);

  char* raw = nullptr;
  if (!svg.empty()) {
    MOE_TRY(Check(moe_plan_svg(plan.get(), &raw)));
    std::ofstream out(svg);
    out << Take(raw);
    if (!out.flush()) return Result::Failure(absl::StrCat("cannot write ", svg));
  }
  MOE_TRY(Check(a.Has("--json") ? moe_plan_json(plan.get(), &raw) : moe_plan_text(plan.get(), &raw)));
  const std::string text = Take(raw);
  std::printf("%s%s", text.c_str(), a.Has("--json") ? "\n" : "");
  std::fflush(stdout);
  int32_t is_free = 0;
  MOE_TRY(Check(moe_plan_is_free(plan.get(), &is_free, &raw)));
  const std::string verdict = Take(raw);
  if (is_free == 0) return {kNotFree, verdict, false};
  return {};
}

}  // namespace moe::trainer
