// What a field may hold by itself: range, allowed values, finite numbers, UTF-8.
#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "core/config/config_io.h"
#include "core/config/fields.h"
#include "core/config/options.pb.h"

namespace moe {
namespace {

// RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF. NUL would end a C string early.
bool IsText(const std::string& s) {
  for (size_t i = 0; i < s.size();) {
    const auto byte = [&](size_t k) { return k < s.size() ? static_cast<unsigned char>(s[k]) : 0u; };
    const unsigned b = byte(i);
    const size_t n = b == 0 ? 0 : b < 0x80 ? 1 : b >= 0xc2 && b < 0xe0 ? 2 : b >= 0xe0 && b < 0xf0 ? 3 : b >= 0xf0 && b < 0xf5 ? 4 : 0;
    if (n == 0) return false;
    for (size_t k = 1; k < n; ++k)
      if ((byte(i + k) & 0xc0) != 0x80) return false;
    if ((b == 0xe0 && byte(i + 1) < 0xa0) || (b == 0xed && byte(i + 1) > 0x9f) || (b == 0xf0 && byte(i + 1) < 0x90) || (b == 0xf4 && byte(i + 1) > 0x8f)) return false;
    i += n;
  }
  return true;
}

bool Allowed(const Field* f, const std::string& value) {
  const auto& o = f->options();
  if (f->cpp_type() == Field::CPPTYPE_STRING) {
    if (!o.HasExtension(config::allowed)) return IsText(value);
    const std::vector<std::string> names = absl::StrSplit(o.GetExtension(config::allowed), ',');
    return std::find(names.begin(), names.end(), value) != names.end();
  }
  double v = 0;
  if (f->cpp_type() == Field::CPPTYPE_BOOL || !absl::SimpleAtod(value, &v)) return true;
  if (!std::isfinite(v)) return false;
  return !(o.HasExtension(config::min) && v < o.GetExtension(config::min)) && !(o.HasExtension(config::max) && v > o.GetExtension(config::max));
}

}  // namespace

absl::Status CheckConfigRanges(const config::Config& c) {
  for (const LeafField& f : ConfigLeaves()) {
    if (!LeafIsSet(c, f)) continue;
    const std::string value = LeafText(c, f);
    if (Allowed(f.leaf(), value)) continue;
    return InvalidArgument(f.path, " is ", f.leaf()->cpp_type() != Field::CPPTYPE_STRING ? value : IsText(value) ? "'" + value + "'" : "not text", "; it must be ", LeafExpects(f.leaf()));
  }
  return absl::OkStatus();
}

}  // namespace moe
