// The pictures of the live view: progress bar, expert loads, loss curve. Pure functions of numbers; the
// characters are one column wide (block elements and braille).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/types.h"
#include "train/styled_line.h"

namespace wych::train {

// `columns` columns, filled in proportion to `fraction`, clamped to [0, 1].
void add_progress_bar(StyledLine& line, int columns, double fraction);

// How far an expert's load is from the mean, worst first: a dead expert gets nothing at all.
enum class LoadGrade { kDead, kFar, kOff, kNear };
// `ratio` is load / mean load, >= 0.
LoadGrade load_grade(double ratio);

// One cell per expert, at half height when its load (routes of a step) is the mean; cells are green near the
// mean, then yellow, then red. A dead expert is a cross. Where the experts outnumber the columns, a cell
// stands for neighbours and shows the one that is furthest from the mean. Uses at most `columns` columns.
void add_expert_loads(StyledLine& line, int columns, std::span<const i64> loads);

// The losses of a run in bounded memory: means over equal stretches of its steps.
class LossHistory {
 public:
  // total_steps >= 1. Steps count from 1.
  explicit LossHistory(i64 total_steps);
  // Losses that are not finite are left out.
  void add(i64 step, double loss);
  // The mean loss of each of `count` equal stretches of the whole run; NaN where there is none.
  [[nodiscard]] std::vector<double> resample(int count) const;

 private:
  struct Bucket {
    double sum = 0;
    i64 count = 0;
  };
  i64 total_steps_;
  std::vector<Bucket> buckets_;
};

// A curve in braille over the whole run, left to right.
struct LossPlot {
  std::vector<std::string> rows;  // top to bottom, each `columns` columns
  double top = 0;                 // losses at the upper and the lower edge; NaN if there is nothing to show
  double bottom = 0;
};
// The highest twentieth of the curve lies above the upper edge and is not drawn: the first steps would press
// the rest flat.
LossPlot plot_losses(const LossHistory& history, int columns, int rows);

}  // namespace wych::train
