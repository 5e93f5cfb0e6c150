// The picture of a run: training and validation loss over the steps, as one SVG.
#ifndef MOE_TRAINER_PLOT_H_
#define MOE_TRAINER_PLOT_H_

#include <string>
#include <vector>

namespace moe::trainer {

struct Point { double x, y; };
std::string PlotLosses(const std::vector<Point>& train, const std::vector<Point>& validation);

}  // namespace moe::trainer
#endif  // MOE_TRAINER_PLOT_H_
