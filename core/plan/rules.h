// What must hold of the programs whatever the timing: the rules that make the proof short, checked one by one so that a message
// can name what is wrong and not only who waits.
#ifndef MOE_CORE_PLAN_RULES_H_
#define MOE_CORE_PLAN_RULES_H_

#include <string>
#include <vector>

#include "core/plan/classes.h"

namespace moe {

// One line for each broken rule:
//  * a group of a layer's collectives stays inside a pipeline stage;
//  * all ranks of a stage execute the same operations, with their groups in the same order;
//  * what all stages share is in every stage's program, in the same order;
//  * each message between stages is sent once and received once.
std::vector<std::string> BrokenRules(const World& world, const Classes& classes);

}  // namespace moe
#endif  // MOE_CORE_PLAN_RULES_H_
