#include <cstdio>

#include "trainer/commands.h"

int main(int argc, char** argv) {
  using namespace moe::trainer;
  const Arguments a = ParseArguments(argc, argv);
  const bool help = a.command == "help" || a.Has("--help");
  const std::string about = a.command == "help" ? (a.words.empty() ? "" : a.words[0]) : a.command;
  if (help && about == "plan") {
    PrintPlanHelp();
    return 0;
  }
  if (a.command.empty() || a.command == "help" || (a.Has("--help") && a.command != "train")) {
    PrintUsage();
    return a.command.empty() && !a.Has("--help") ? 2 : 0;
  }
  const struct { const char* name; Result (*run)(const Arguments&); } commands[] = {{"train", Train}, {"eval", Evaluate}, {"generate", Generate}, {"info", Info}, {"bench", Bench}, {"plan", PlanCommand}, {"doctor", Doctor}, {"trace", TraceCommand}};
  for (const auto& c : commands) {
    if (a.command != c.name) continue;
    const Result r = c.run(a);
    if (!r.message.empty()) std::fprintf(stderr, "moe: %s\n", r.message.c_str());
    return r.exit_code;
  }
  std::fprintf(stderr, "moe: unknown command '%s'; known: train, eval, generate, plan, doctor, trace, info, bench, test\n", a.command.c_str());
  return 2;
}
