// Charts as HTML fragments with inline SVG: no script, no image, readable at any width. The drawing stretches
// with the page while text and line widths keep their size: labels are HTML, placed in per cent, and colours
// are classes that the page's style sheet defines (report.cc).
#pragma once

#include <string>
#include <vector>

#include "train/run_record.h"

namespace wych::train {

enum class Mark {
  kLine,
  kFaintLine,   // behind the others
  kDashedLine,  // a level to compare with
  kDots,
};

struct Series {
  std::string label;  // in the legend; empty: not there
  int color = 0;      // class "c<color>", 0 to 3
  Mark mark = Mark::kLine;
  std::vector<Point> points;  // in order of steps
};

struct LineChart {
  std::string title;
  bool log_scale = false;  // of the values; those that are not positive are left out
  std::vector<Series> series;
};

// A <figure> with axes, legend and curves; empty if there is no value to draw. Values that are not finite
// leave a gap. Thousands of points per series come out as a few hundred, extremes kept.
std::string line_chart(const LineChart& chart);

struct HeatMapRow {
  std::string label;
  std::vector<double> relative;  // 1: the mean
};

// A <figure> with a cell per value: transparent at 1, one colour towards 0 and another towards 2 and beyond.
// Empty without rows.
std::string heat_map(const std::string& title, const std::string& columns,
                     const std::vector<HeatMapRow>& rows);

// Each value's mean over the `radius` points before and after it, so the curve does not lag; gaps stay gaps
// and count in no mean.
std::vector<Point> smoothed(const std::vector<Point>& points, std::size_t radius);

}  // namespace wych::train
