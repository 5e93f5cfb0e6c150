#include <cstdio>

#include "trainer/commands.h"

int main(int argc, char** argv) {
  using namespace moe::trainer;
  const Arguments a = ParseArguments(argc, argv);
  if (a.command.empty() || a.command == "help" || (a.Has("--help") && a.command != "train")) {
    PrintUsage();
    return a.command.empty() && !a.Has("--help") ? 2 : 0;
  }
  const struct { const char* name; Result (*run)(const Arguments&); } commands[] = {{"train", Train}, {"eval", Evaluate}, {"generate", Generate}, {"info", Info}, {"bench", Bench}};
  for (const auto& c : commands) {
    if (a.command != c.name) continue;
    const Result r = c.run(a);
    if (!r.message.empty()) std::fprintf(stderr, "moe: %s\n", r.message.c_str());
    return r.exit_code;
  }
  std::fprintf(stderr, "moe: unknown command '%s'; known: train, eval, generate, info, bench, test\n", a.command.c_str());
  return 2;
}
