#include "transport/conformance/leftovers.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

namespace moe::conformance {
namespace {

namespace fs = std::filesystem;

std::set<std::string> Files() {
  std::set<std::string> files;
  std::error_code error;
  for (const fs::directory_entry& e : fs::directory_iterator("/dev/shm", error)) {
    if (e.path().filename().string().rfind("ucx_shm_posix_", 0) == 0) files.insert(e.path().string());
  }
  return files;
}

bool Mapped(const std::string& file) {
  std::error_code error;
  for (const fs::directory_entry& e : fs::directory_iterator("/proc", error)) {
    std::ifstream maps(e.path() / "maps");
    const std::string text((std::istreambuf_iterator<char>(maps)), std::istreambuf_iterator<char>());
    if (text.find(file) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

Leftovers::Leftovers() : before_(Files()) {}

Leftovers::~Leftovers() {
  std::error_code error;
  for (const std::string& file : Files()) {
    if (before_.count(file) == 0 && !Mapped(file)) fs::remove(file, error);
  }
}

}  // namespace moe::conformance
