// moe doctor, moe trace: what the flight recorders of a run's ranks say.
#include <sys/stat.h>

#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "trainer/commands.h"

namespace moe::trainer {
namespace {

// The folder with the recorders' files of a run that is named, or given as a folder.
Result FlightFolder(const Arguments& a, std::string* folder) {
  if (a.words.size() > 1) return Result::Misuse(absl::StrCat("moe ", a.command, " takes one run; '", a.words[1], "' is a second"));
  Config config;
  MOE_TRY(MakeConfig("", a, &config));
  const std::string run = a.words.empty() ? "last" : a.words[0], root = GetText(config.get(), "run_root");
  struct stat s {};
  for (const std::string& base : {absl::StrCat(root, "/", run), run}) {
    *folder = base + "/flight";
    if (::stat(folder->c_str(), &s) == 0) return {};
  }
  return Result::Misuse(absl::StrCat("no flight recorder of run '", run, "': neither ", root, "/", run, "/flight nor ", *folder, " is there. Runs of several ranks have one; name one of ", root));
}

}  // namespace

Result Doctor(const Arguments& a) {
  MOE_TRY(CheckFlags(a, {"--live"}));   // it is always live: the files are the ranks' memory
  std::string folder;
  MOE_TRY(FlightFolder(a, &folder));
  char* text = nullptr;
  MOE_TRY(Check(moe_flight_report(folder.c_str(), &text)));
  std::printf("%s", Take(text).c_str());
  return {};
}

Result TraceCommand(const Arguments& a) {
  MOE_TRY(CheckFlags(a, {"--out"}));
  std::string folder;
  MOE_TRY(FlightFolder(a, &folder));
  char* raw = nullptr;
  MOE_TRY(Check(moe_flight_trace(folder.c_str(), &raw)));
  const std::string json = Take(raw), path = a.Flag("--out", folder.substr(0, folder.rfind('/')) + "/trace.json");
  std::ofstream out(path);
  out << json;
  out.close();
  if (!out) return Result::Failure(absl::StrCat("cannot write ", path));
  std::printf("%s: open it in ui.perfetto.dev or chrome://tracing\n", path.c_str());
  return {};
}

}  // namespace moe::trainer
