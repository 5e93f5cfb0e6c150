// A step's timeline to look at: text with one line per stage and time in columns, and SVG.
#ifndef MOE_CORE_PLAN_REPORT_PICTURE_H_
#define MOE_CORE_PLAN_REPORT_PICTURE_H_

#include <string>

#include "core/plan/report/simulate.h"

namespace moe {

// F3: forward of micro-batch 3; B backward; I and W the input and weight halves of a backward; F3.5: of virtual stage 5. Begins
// with the first of them: a pass that only routes is not shown. What does not fit in `width` columns or `lines` stages is cut
// and said so.
std::string TextPicture(const std::vector<StageProgram>& programs, const Timeline& timeline, int64_t width = 150, int64_t lines = 32);
// The whole step, routing pass (R), reductions and update too.
std::string SvgPicture(const std::vector<StageProgram>& programs, const Timeline& timeline, const std::string& title);

}  // namespace moe
#endif  // MOE_CORE_PLAN_REPORT_PICTURE_H_
