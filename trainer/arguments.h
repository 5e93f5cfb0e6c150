// The command line: moe COMMAND [CONFIG] [field=value ...] [--flag[=value] ...].
#ifndef MOE_TRAINER_ARGUMENTS_H_
#define MOE_TRAINER_ARGUMENTS_H_

#include <map>
#include <string>
#include <vector>

#include "trainer/api.h"

namespace moe::trainer {

struct Arguments {
  std::vector<std::string> original;          // as given, for starting ranks
  std::string command;                        // "train"
  std::vector<std::string> words;             // neither field=value nor flags
  std::vector<std::pair<std::string, std::string>> fields;
  std::map<std::string, std::string> flags;   // "--against" -> "", "--rounds=3" -> "3"
  bool Has(const std::string& flag) const { return flags.count(flag) > 0; }
  std::string Flag(const std::string& flag, const std::string& otherwise) const { return Has(flag) ? flags.at(flag) : otherwise; }
};

Arguments ParseArguments(int argc, char** argv);
// MISUSE when a flag is given that the command does not know.
Result CheckFlags(const Arguments& a, const std::vector<std::string>& known);
// A number above 0; without the flag *value stays.
Result PositiveFlag(const Arguments& a, const char* flag, double* value);

// The configuration: defaults, then `file` (may be ""), then field=value in order; not yet validated.
Result MakeConfig(const std::string& file, const Arguments& a, Config* out);

}  // namespace moe::trainer
#endif  // MOE_TRAINER_ARGUMENTS_H_
