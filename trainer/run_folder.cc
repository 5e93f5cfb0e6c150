#include "trainer/run_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/plot.h"

namespace moe::trainer {
namespace {

namespace fs = std::filesystem;

std::string PathOf(const moe_config* c) { return absl::StrCat(GetText(c, "run_root"), "/", GetText(c, "run")); }

Result WriteText(const std::string& path, const std::string& text) {
  const std::string tmp = path + ".tmp";
  std::ofstream f(tmp, std::ios::binary);
  f << text;
  f.close();
  if (!f || std::rename(tmp.c_str(), path.c_str()) != 0) {
    const int error = errno;
    std::remove(tmp.c_str());
    return Result::Misuse(absl::StrCat("cannot write ", path, ": ", std::strerror(error), "; choose another run_root or run"));
  }
  return {};
}

}  // namespace

RunFolder::RunFolder(const moe_config* config) : path_(PathOf(config)) {}

Result RunFolder::Prepare(moe_config* config) {
  std::string name = GetText(config, "run");
  const bool resume = GetBool(config, "resume");
  if (name.empty()) {
    if (resume) return Result::Misuse("resume is true but run is empty; name the run: run=NAME");
    const std::time_t now = std::time(nullptr);
    std::tm tm;
    ::localtime_r(&now, &tm);
    char text[32];
    std::strftime(text, sizeof(text), "%Y%m%d-%H%M%S", &tm);
    name = text;
    for (int i = 2; fs::exists(absl::StrCat(GetText(config, "run_root"), "/", name)); ++i) name = absl::StrCat(text, "-", i);
    MOE_TRY(Check(moe_config_set(config, "run", name.c_str())));
  }
  if (name.find('/') != std::string::npos || name == "." || name == ".." || name == "last")
    return Result::Misuse(absl::StrCat("run is '", name, "'; give a plain name (the folder is run_root/NAME, 'last' is the link to the newest)"));
  RunFolder folder(config);
  std::error_code error;
  fs::create_directories(folder.path() + "/checkpoints", error);
  if (error) return Result::Misuse(absl::StrCat("run_root is '", GetText(config, "run_root"), "': cannot create ", folder.path(), "/checkpoints: ", error.message(), "; choose another run_root"));
  const auto checkpoints = folder.Checkpoints();
  if (!resume && !checkpoints.empty())
    return Result::Misuse(absl::StrCat("run '", name, "' has checkpoints already (newest: step ", checkpoints.back(), "); go on with resume=true, or choose another run=NAME, or remove ", folder.path()));
  if (resume && checkpoints.empty()) return Result::Misuse(absl::StrCat("resume is true but run '", name, "' has no checkpoint in ", folder.path(), "/checkpoints"));
  char* text = nullptr;
  MOE_TRY(Check(moe_config_to_text(config, 1, &text)));
  MOE_TRY(WriteText(folder.path() + "/config.textproto", Take(text)));
  const std::string link = GetText(config, "run_root") + "/last";
  fs::remove(link, error);
  fs::create_directory_symlink(name, link, error);   // a convenience
  return {};
}

std::string RunFolder::CheckpointPath(int64_t step) const { return absl::StrFormat("%s/checkpoints/step-%08d", path_, step); }

std::vector<int64_t> RunFolder::Checkpoints() const {
  std::vector<int64_t> steps;
  std::error_code error;
  for (const auto& e : fs::directory_iterator(path_ + "/checkpoints", error)) {
    const std::string name = e.path().filename().string();
    int64_t step;
    if (name.rfind("step-", 0) == 0 && absl::SimpleAtoi(name.substr(5), &step)) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

void RunFolder::Prune(int64_t keep) const {
  const auto steps = Checkpoints();
  std::error_code error;
  for (size_t i = 0; i + static_cast<size_t>(keep) < steps.size(); ++i) fs::remove_all(CheckpointPath(steps[i]), error);
}

Result RunFolder::OpenMetrics(int64_t step) {
  const std::string path = path_ + "/metrics.jsonl";
  std::string kept;
  std::ifstream old(path);
  for (std::string line; std::getline(old, line);) {
    const Json j = Json::parse(line, nullptr, false);
    if (j.is_object() && j.contains("step") && j["step"].is_number_integer() && j["step"].get<int64_t>() < step) kept += line + "\n";
  }
  MOE_TRY(WriteText(path, kept));
  metrics_ = std::fopen(path.c_str(), "a");
  return metrics_ ? Result() : Result::Misuse(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
}

Result RunFolder::Append(const Json& line) {
  const std::string text = line.dump() + "\n";
  if (std::fwrite(text.data(), 1, text.size(), metrics_) != text.size() || std::fflush(metrics_) != 0)
    return Result::Failure(absl::StrCat("cannot write ", path_, "/metrics.jsonl: ", std::strerror(errno)));
  return {};
}

void RunFolder::WritePlot() const {
  std::vector<Point> train, val;
  std::ifstream f(path_ + "/metrics.jsonl");
  for (std::string line; std::getline(f, line);) {
    const Json j = Json::parse(line, nullptr, false);
    if (!j.is_object() || !j.contains("step")) continue;
    if (j.contains("loss")) train.push_back({j["step"].get<double>(), j["loss"].get<double>()});
    if (j.contains("val_loss")) val.push_back({j["step"].get<double>(), j["val_loss"].get<double>()});
  }
  (void)WriteText(path_ + "/loss.svg", PlotLosses(train, val));   // the run is whole without its picture
}

}  // namespace moe::trainer
