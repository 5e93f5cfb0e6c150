// Which field of a text-format file stands at a position: the parser tells line and column of an error, the user thinks in
// paths.
#ifndef MOE_CORE_CONFIG_TEXT_POSITION_H_
#define MOE_CORE_CONFIG_TEXT_POSITION_H_

#include <string>

namespace moe {

// Path of the field (or section) whose name was read last before the position; "" at the top. Line and column from 0, a tab ends at the
// next multiple of 8, as protobuf counts.
std::string FieldPathAt(const std::string& text, int line, int column);

}  // namespace moe
#endif  // MOE_CORE_CONFIG_TEXT_POSITION_H_
