// Line charts as HTML fragments with inline SVG: no script, no image, readable at any width. The drawing
// stretches with the page while text and line widths keep their size: labels are HTML, placed in per cent,
// and colours are classes that the page's style sheet defines (report_style.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "train/run_record.h"

namespace wych::train {

enum class Mark {
  kLine,
  kFaintLine,  // behind the others
  kLevel,      // a value over the whole width, labelled where it lies
  kDots,
  kTicks,  // at the upper edge, for steps without a value
};

struct Series {
  std::string label;  // in the legend and in the details; empty: in neither
  int color = 0;      // class "c<color>", 0 to 4
  Mark mark = Mark::kLine;
  std::vector<Point> points;  // in order of steps; of a level only the value of the first counts
};

struct LineChart {
  std::string id;  // unique on the page
  std::string title;
  std::string unit;         // "nats per token"; may be empty
  bool log_values = false;  // those that are not positive are left out
  bool log_x = false;
  std::vector<Series> series;
};

// A <figure> with axes, legend, curves, and details under the pointer; empty if there is no value to draw.
// Across: tokens if the points have any, else steps. Values that are not finite leave a gap. Thousands of
// points per series come out as a few hundred, extremes kept.
std::string line_chart(const LineChart& chart);

// Equal vertical strips over a plot, each showing its text while it is pointed at, tapped or reached with the
// arrow keys; radio buttons underneath, so no script is needed. `id` is unique on the page. A text without
// characters leaves its strip out.
std::string detail_strips(std::string_view id, const std::vector<std::string>& texts);

// "0.003", "1500", "20k", "3M".
std::string tick_text(double value);

// Each value's mean over the `radius` points before and after it, so the curve does not lag; gaps stay gaps
// and count in no mean.
std::vector<Point> smoothed(const std::vector<Point>& points, std::size_t radius);

}  // namespace wych::train
