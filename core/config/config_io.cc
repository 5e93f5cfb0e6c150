#include "core/config/config_io.h"

#include <cerrno>
#include <cstdio>
#include <memory>

#include "core/config/fields.h"
#include "core/config/readers.h"

namespace moe {
namespace {

constexpr size_t kLargestFile = 1 << 20;   // a wrong path (a data set, a device) is told from a configuration

struct Close { void operator()(std::FILE* f) const { std::fclose(f); } };

absl::StatusOr<std::string> ReadWhole(const std::string& path) {
  const auto error = [&](int number) { return absl::ErrnoToStatus(number, absl::StrCat("cannot read the configuration ", path)); };
  const std::unique_ptr<std::FILE, Close> f(std::fopen(path.c_str(), "rb"));
  if (!f) return error(errno);
  std::string text;
  char block[4096];
  for (size_t n; (n = std::fread(block, 1, sizeof(block), f.get())) > 0;) {
    text.append(block, n);
    if (text.size() > kLargestFile) return InvalidArgument(path, " has more than ", kLargestFile, " bytes: not a configuration");
  }
  if (std::ferror(f.get())) return error(errno);
  return text;
}

}  // namespace

absl::StatusOr<config::Config> ParseConfig(const std::string& text, const std::string& source) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool json = first != std::string::npos && text[first] == '{';
  absl::StatusOr<config::Config> c = json ? ReadJson(text) : ReadText(text);
  MOE_RETURN_IF_ERROR(Annotate(c.status(), source));
  MOE_RETURN_IF_ERROR(Annotate(CheckConfigRanges(*c), source));
  return c;
}

absl::StatusOr<config::Config> LoadConfig(const std::string& path) {
  MOE_ASSIGN_OR_RETURN(const std::string text, ReadWhole(path));
  return ParseConfig(text, path);
}

absl::Status SetConfigField(config::Config* c, const std::string& path, const std::string& value) {
  MOE_ASSIGN_OR_RETURN(const LeafField f, FindConfigField(path));
  config::Config changed = *c;
  MOE_RETURN_IF_ERROR(SetLeaf(&changed, f, value));
  MOE_RETURN_IF_ERROR(CheckConfigRanges(changed));
  *c = std::move(changed);
  return absl::OkStatus();
}

absl::StatusOr<std::string> GetConfigField(const config::Config& c, const std::string& path) {
  MOE_ASSIGN_OR_RETURN(const LeafField f, FindConfigField(path));
  return LeafText(c, f);
}

}  // namespace moe
