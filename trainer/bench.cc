#include "trainer/bench.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainer/commands.h"

namespace moe::trainer {

Spread SpreadOf(std::vector<double> v) {
  if (v.empty()) return {};
  std::sort(v.begin(), v.end());
  const size_t n = v.size();
  return {n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2, v.front(), v.back()};
}

int64_t IntFlag(const Arguments& a, const std::string& flag, int64_t otherwise) {
  int64_t v;
  return absl::SimpleAtoi(a.Flag(flag, ""), &v) ? v : otherwise;
}

Result RunForJson(const std::vector<std::string>& command, std::vector<Json>* lines) {
  int fd[2];
  if (::pipe(fd) != 0) return Result::Failure(absl::StrCat("cannot make a pipe: ", std::strerror(errno)));
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(fd[1], 1);
    ::close(fd[0]);
    ::close(fd[1]);
    std::vector<char*> argv;
    for (const std::string& w : command) argv.push_back(const_cast<char*>(w.c_str()));
    argv.push_back(nullptr);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(fd[1]);
  std::string text;
  char block[4096];
  for (ssize_t n; (n = ::read(fd[0], block, sizeof(block))) > 0 || (n < 0 && errno == EINTR);)
    if (n > 0) text.append(block, static_cast<size_t>(n));
  ::close(fd[0]);
  int status = 0;
  while (pid > 0 && ::waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  if (pid < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return Result::Failure(absl::StrCat("'", absl::StrJoin(command, " "), "' failed: ", text.size() > 500 ? text.substr(text.size() - 500) : text));
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const Json j = Json::parse(text.substr(at, end - at), nullptr, false);
    if (j.is_object()) lines->push_back(j);
    at = end + 1;
  }
  return {};
}

Result PeerPython(const Arguments& a, const std::string& modules, std::string* python) {
  *python = a.Flag("--peer-python", "python3");
  std::vector<Json> none;
  if (!RunForJson({*python, "-c", "import " + modules}, &none).ok())
    return Result::Misuse(absl::StrCat("--against needs an interpreter that can import ", modules, "; '", *python, "' cannot. Make one: python3 -m venv V && V/bin/pip install torch transformers; then --peer-python=V/bin/python"));
  return {};
}

Result PeerScript(const Arguments& a, const std::string& name, std::string* path) {
  *path = a.Flag("--root", ".") + "/tests/peers/" + name;
  if (::access(path->c_str(), R_OK) != 0) return Result::Misuse(absl::StrCat("cannot read ", *path, "; start through the script ./moe of the source tree"));
  return {};
}

std::string Self() {
  char path[4096];
  const ssize_t n = ::readlink("/proc/self/exe", path, sizeof(path));
  return n > 0 ? std::string(path, static_cast<size_t>(n)) : "moe";
}

Result Bench(const Arguments& a) {
  const std::string what = a.words.empty() ? "" : a.words[0];
  if (what == "layer") return BenchLayer(a);
  if (what == "train" || what == "train-once") return BenchTrain(a);
  if (what == "pipeline") return BenchPipeline(a);
  return Result::Misuse(absl::StrCat("moe bench ", what, ": choose layer, train or pipeline"));
}

}  // namespace moe::trainer
