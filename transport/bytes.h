// Numbers and strings in a row of bytes, for messages between ranks. Reading is bounded: the bytes may come from anywhere.
#ifndef MOE_TRANSPORT_BYTES_H_
#define MOE_TRANSPORT_BYTES_H_

#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/string_view.h"

namespace moe {

inline void PutInt(std::string* s, int64_t v) { s->append(reinterpret_cast<const char*>(&v), sizeof(v)); }
inline void PutText(std::string* s, absl::string_view text) {
  PutInt(s, static_cast<int64_t>(text.size()));
  s->append(text.data(), text.size());
}

class ByteReader {
 public:
  explicit ByteReader(const std::string& s) : s_(s) {}  // which outlives it

  bool Int(int64_t* v) { return Raw(v, sizeof(*v)); }
  bool Text(std::string* text) {
    int64_t n = 0;
    if (!Int(&n) || n < 0 || n > static_cast<int64_t>(s_.size() - at_)) return false;
    text->assign(s_, at_, n);
    at_ += n;
    return true;
  }
  bool Raw(void* to, size_t n) {
    if (s_.size() - at_ < n) return false;
    std::memcpy(to, s_.data() + at_, n);
    at_ += n;
    return true;
  }
  bool AtEnd() const { return at_ == s_.size(); }

 private:
  const std::string& s_;
  size_t at_ = 0;
};

}  // namespace moe
#endif  // MOE_TRANSPORT_BYTES_H_
