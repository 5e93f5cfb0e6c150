// The folder of a run: full configuration, metrics, checkpoints, plot.
#ifndef MOE_TRAINER_RUN_FOLDER_H_
#define MOE_TRAINER_RUN_FOLDER_H_

#include <cstdio>
#include <string>
#include <vector>

#include "trainer/api.h"

namespace moe::trainer {

class RunFolder {
 public:
  // Names a run that has no name (run = date and time) in the configuration, makes the folder, refuses one with checkpoints unless
  // resume is set, writes config.textproto and the link runs/last. Called once, before ranks start.
  static Result Prepare(moe_config* config);
  // Of a prepared run.
  explicit RunFolder(const moe_config* config);

  const std::string& path() const { return path_; }
  std::string CheckpointPath(int64_t step) const;
  // Steps of the whole checkpoints, ascending.
  std::vector<int64_t> Checkpoints() const;
  // Removes all but the newest `keep`.
  void Prune(int64_t keep) const;

  // Opens metrics.jsonl: lines of steps >= `step` are dropped (they will be made again), the rest stays.
  Result OpenMetrics(int64_t step);
  Result Append(const Json& line);
  void WritePlot() const;   // loss.svg from metrics.jsonl

 private:
  std::string path_;
  std::FILE* metrics_ = nullptr;
};

}  // namespace moe::trainer
#endif  // MOE_TRAINER_RUN_FOLDER_H_
