// What a person sees of a run: the model's table, a line that moves on a terminal, lines now and then elsewhere.
#ifndef MOE_TRAINER_PROGRESS_H_
#define MOE_TRAINER_PROGRESS_H_

#include <chrono>
#include <string>

#include "trainer/api.h"

namespace moe::trainer {

// The first lines of a run, from moe_model_describe and moe_engine_describe.
std::string ModelTable(const Json& model, const Json& engine, const moe_config* config);

class Progress {
 public:
  Progress(bool show, int64_t first_step, int64_t steps, int64_t every);
  // imbalance: tokens of the busiest expert over the mean, worst layer.
  void Step(int64_t step, double loss, double tokens_per_s, double imbalance);
  // A line of its own.
  void Say(const std::string& line);

 private:
  bool show_, terminal_;
  int64_t first_, steps_, every_;
  std::chrono::steady_clock::time_point start_;
  bool open_ = false;   // a line is on the terminal that the next one overwrites
};

std::string Thousands(int64_t n);      // 13,510,912
std::string Mebibytes(int64_t bytes);  // "412 MiB"

}  // namespace moe::trainer
#endif  // MOE_TRAINER_PROGRESS_H_
