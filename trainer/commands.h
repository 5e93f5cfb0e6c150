// The commands of the program.
#ifndef MOE_TRAINER_COMMANDS_H_
#define MOE_TRAINER_COMMANDS_H_

#include "trainer/arguments.h"
#include "trainer/launcher.h"

namespace moe::trainer {

Result Train(const Arguments& a);
Result Evaluate(const Arguments& a);
Result Generate(const Arguments& a);
Result Info(const Arguments& a);
Result Bench(const Arguments& a);
Result BenchLayer(const Arguments& a);
Result BenchTrain(const Arguments& a);
Result BenchPipeline(const Arguments& a);
Result PlanCommand(const Arguments& a);
Result Doctor(const Arguments& a);
Result TraceCommand(const Arguments& a);

void PrintUsage();
void PrintPlanHelp();
// Every field with its default and its comment.
Result PrintTrainHelp();

// Inside torchrun or mpirun the number of ranks is theirs: `ranks` is set to it, or refused when it was given and differs.
Result AdoptWorld(const Arguments& a, moe_config* config);

}  // namespace moe::trainer
#endif  // MOE_TRAINER_COMMANDS_H_
