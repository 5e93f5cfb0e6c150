// Learning rate of step s = 0, 1, ... : linear warm-up lr (s+1) / warmup_steps, then constant or a cosine from lr at step
// warmup_steps - 1 to lr * min_lr_ratio at the last step (arXiv 1608.03983 without restarts).
#ifndef MOE_CORE_TRAIN_LR_SCHEDULE_H_
#define MOE_CORE_TRAIN_LR_SCHEDULE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/config/config.pb.h"

namespace moe {

inline double LearningRate(const config::OptimizerConfig& c, int64_t total_steps, int64_t step) {
  if (step < c.warmup_steps()) return c.lr() * static_cast<double>(step + 1) / static_cast<double>(c.warmup_steps());
  if (c.schedule() == "constant") return c.lr();
  const int64_t first = std::max<int64_t>(c.warmup_steps() - 1, 0);
  const int64_t last = (c.decay_steps() > 0 ? c.decay_steps() : total_steps) - 1;
  const double at = last > first ? std::min(1.0, static_cast<double>(step - first) / static_cast<double>(last - first)) : 1.0;
  return c.lr() * (c.min_lr_ratio() + (1 - c.min_lr_ratio()) * 0.5 * (1 + std::cos(3.14159265358979323846 * at)));
}

}  // namespace moe
#endif  // MOE_CORE_TRAIN_LR_SCHEDULE_H_
