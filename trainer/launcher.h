// Ranks: who am I, and starting the others.
//
//  * Inside torchrun (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) or Open MPI (OMPI_COMM_WORLD_*) this process is one rank.
//  * transport=inproc: ranks are threads. ranks=1: this thread.
//  * Else this process is the parent: it starts `ranks` children of itself, watches and reaps them. A child that dies ends the job
//    within seconds; children die with their parent, so no orphan stays.
#ifndef MOE_TRAINER_LAUNCHER_H_
#define MOE_TRAINER_LAUNCHER_H_

#include <functional>
#include <string>

#include "trainer/arguments.h"

namespace moe::trainer {

// One rank's place in the job.
struct RankPlace {
  int64_t rank = 0, world = 1, local_world = 1;
  std::string host;      // of the rendezvous, "" = configuration
  int64_t port = 0;
  std::string job_id = "moe";
  moe_inproc* inproc = nullptr;
  bool leader() const { return rank == 0; }
};

using RankFunction = std::function<Result(const RankPlace&)>;

// True in a child that a parent of this program, torchrun or mpirun has started.
bool IsStartedRank(const Arguments& a);

// Ranks of the launch contract (torchrun, mpirun) that this process was started under; 0: none.
int64_t ForeignWorld();

// Runs `f` once per rank, as the configuration says, and returns how the job ended. In a started rank: once, with its place.
Result RunRanks(const Arguments& a, const moe_config* config, const RankFunction& f);

// Set by the first Ctrl-C or SIGTERM; the second one ends the process at once. Ranks look at it between steps.
bool StopRequested();

}  // namespace moe::trainer
#endif  // MOE_TRAINER_LAUNCHER_H_
