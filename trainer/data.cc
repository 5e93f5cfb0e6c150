#include "trainer/data.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace moe::trainer {
namespace {

uint64_t SplitMix(uint64_t z) {
  z += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// The text that `bible` of Debian's package bible-kjv prints. It takes a second, so the ranks' parent runs it once and the text
// stays in the user's cache.
constexpr int64_t kBibleBytes = 4000000;   // at least

Result ReadFile(const std::string& path, std::string* out) {
  struct stat st;
  if (::stat(path.c_str(), &st) != 0) return Result::Misuse(absl::StrCat("data.path is '", path, "': ", std::strerror(errno), "; give the path of a text file"));
  if (!S_ISREG(st.st_mode)) return Result::Misuse(absl::StrCat("data.path is '", path, "', which is not a file"));
  std::ifstream f(path, std::ios::binary);
  std::ostringstream text;
  if (!f || (st.st_size > 0 && !(text << f.rdbuf()))) return Result::Misuse(absl::StrCat("data.path is '", path, "', which cannot be read: ", std::strerror(errno)));
  *out = text.str();
  return {};
}

std::string CachePath() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string folder = cache && *cache ? cache : home && *home ? std::string(home) + "/.cache" : "/tmp";
  ::mkdir(folder.c_str(), 0755);
  ::mkdir((folder + "/moe").c_str(), 0755);
  return folder + "/moe/kjv.txt";
}

Result ReadBible(std::string* out) {
  const std::string cached = CachePath();
  if (ReadFile(cached, out).ok() && static_cast<int64_t>(out->size()) >= kBibleBytes) return {};
  out->clear();
  FILE* pipe = ::popen("/usr/bin/bible -f 'Genesis1:1-Revelation22:21' 2>/dev/null", "r");
  if (pipe != nullptr) {
    char block[65536];
    for (size_t n; (n = std::fread(block, 1, sizeof(block), pipe)) > 0;) out->append(block, n);
    ::pclose(pipe);
  }
  if (static_cast<int64_t>(out->size()) < kBibleBytes)
    return Result::Misuse("data.path is empty and the King James Bible is not there (/usr/bin/bible): apt-get install bible-kjv, or give data.path=FILE");
  const std::string tmp = absl::StrCat(cached, ".", ::getpid());
  std::ofstream f(tmp, std::ios::binary);
  f << *out;
  f.close();
  if (!f || std::rename(tmp.c_str(), cached.c_str()) != 0) std::remove(tmp.c_str());   // a cache, no more
  return {};
}

}  // namespace

Result Corpus::Open(const moe_config* config, Corpus* c) {
  const std::string path = GetText(config, "data.path");
  c->seq_ = GetInt(config, "train.seq_len");
  c->seed_ = std::strtoull(GetText(config, "seed").c_str(), nullptr, 10);
  c->name_ = path.empty() ? "King James Bible (bible-kjv)" : path;
  MOE_TRY(path.empty() ? ReadBible(&c->text_) : ReadFile(path, &c->text_));
  const int64_t n = static_cast<int64_t>(c->text_.size());
  if (n == 0) return Result::Misuse(absl::StrCat("data.path is '", path, "', which is empty; give a text file"));
  if (GetInt(config, "model.vocab_size") < 256)
    return Result::Misuse(absl::StrCat("model.vocab_size is ", GetInt(config, "model.vocab_size"), "; the data are bytes and need at least 256"));
  const double fraction = GetDouble(config, "data.val_fraction");
  c->train_ = n - static_cast<int64_t>(static_cast<double>(n) * fraction);
  const std::string remedy = absl::StrCat("; a sequence is train.seq_len + 1 = ", c->seq_ + 1, " bytes: give more text or a smaller train.seq_len");
  if (c->train_ < c->seq_ + 1) return Result::Misuse(absl::StrCat("data.path is '", c->name_, "', whose training part has ", c->train_, " bytes", remedy));
  if (fraction > 0 && c->held_out_bytes() < c->seq_ + 1)
    return Result::Misuse(absl::StrCat("data.path is '", c->name_, "', whose held-out part (data.val_fraction ", fraction, ") has ", c->held_out_bytes(), " bytes", remedy, ", another data.val_fraction, or 0"));
  return {};
}

void Corpus::Append(int64_t at, Sequences* out) const {
  for (int64_t s = 0; s < seq_; ++s) {
    out->ids.push_back(static_cast<unsigned char>(text_[at + s]));
    out->labels.push_back(static_cast<unsigned char>(text_[at + s + 1]));
  }
  ++out->count;
}

Sequences Corpus::Train(int64_t first, int64_t count) const {
  Sequences s;
  for (int64_t i = first; i < first + count; ++i)
    Append(static_cast<int64_t>(SplitMix(SplitMix(seed_) ^ static_cast<uint64_t>(i)) % static_cast<uint64_t>(train_ - seq_)), &s);
  return s;
}

Sequences Corpus::HeldOut(int64_t first, int64_t count) const {
  Sequences s;
  for (int64_t i = first; i < first + count; ++i) Append(train_ + i * seq_, &s);
  return s;
}

}  // namespace moe::trainer
