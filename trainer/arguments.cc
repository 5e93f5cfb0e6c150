#include "trainer/arguments.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace moe::trainer {

Arguments ParseArguments(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    a.original.push_back(word);
    const size_t eq = word.find('=');
    if (word.rfind("--", 0) == 0) a.flags[word.substr(0, eq)] = eq == std::string::npos ? "" : word.substr(eq + 1);
    else if (word == "-h") a.flags["--help"] = "";
    else if (a.command.empty() && eq == std::string::npos) a.command = word;
    else if (eq != std::string::npos && word.find('/') > eq) a.fields.emplace_back(word.substr(0, eq), word.substr(eq + 1));
    else a.words.push_back(word);
  }
  return a;
}

Result CheckFlags(const Arguments& a, const std::vector<std::string>& known) {
  for (const auto& [flag, value] : a.flags) {
    const bool always = flag == "--help" || flag == "--root" || flag.rfind("--internal-", 0) == 0;
    if (!always && std::find(known.begin(), known.end(), flag) == known.end())
      return Result::Misuse(absl::StrCat("unknown flag ", flag, " for 'moe ", a.command, "'", known.empty() ? "" : absl::StrCat("; known: ", absl::StrJoin(known, ", "))));
  }
  return {};
}

Result PositiveFlag(const Arguments& a, const char* flag, double* value) {
  if (!a.Has(flag)) return {};
  const std::string text = a.Flag(flag, "");
  if (!absl::SimpleAtod(text, value) || !(*value > 0)) return Result::Misuse(absl::StrCat(flag, " is '", text, "', must be a number above 0"));
  return {};
}

Result MakeConfig(const std::string& file, const Arguments& a, Config* out) {
  moe_config* c = nullptr;
  MOE_TRY(Check(file.empty() ? moe_config_create(&c) : moe_config_load(file.c_str(), &c)));
  out->reset(c);
  for (const auto& [path, value] : a.fields) MOE_TRY(Check(moe_config_set(c, path.c_str(), value.c_str())));
  return {};
}

}  // namespace moe::trainer
