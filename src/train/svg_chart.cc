#include "train/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "train/html.h"

namespace wych::train {
namespace {

constexpr double kExtent = 1000;           // of the drawing in its own units, both ways
constexpr i64 kChartHeight = 220;          // pixels
constexpr std::size_t kMaxBuckets = 400;   // per series; each draws its extremes
constexpr double kLargestDrawable = 1e30;  // beyond, differences overflow and labels are unreadable

struct Axis {
  double low = 0;
  double high = 1;
  bool log = false;
  std::vector<double> ticks;

  [[nodiscard]] bool can_show(double value) const {
    return std::abs(value) < kLargestDrawable && (!log || value > 1 / kLargestDrawable);
  }
  // 0 at the low end, 1 at the high end.
  [[nodiscard]] double share(double value) const {
    return log ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
  }
};

// Ticks at 1, 2 or 5 times a power of ten, about `count` of them.
std::vector<double> linear_ticks(double low, double high, int count) {
  const double rough = (high - low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double digit = rough / power;
  const double step = power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
  const double first = std::ceil(low / step - 1e-9);
  std::vector<double> ticks;
  for (int i = 0; i <= 2 * count && (first + i) * step <= high + 1e-9 * step; ++i) {
    ticks.push_back((first + i) * step + 0.0);  // no minus before zero
  }
  return ticks;
}

// Powers of ten, every so many where there are more than six; twice and five times them in a short range.
std::vector<double> log_ticks(double low, double high) {
  const double decades = std::log10(high / low);
  const int stride = std::max(1, static_cast<int>(std::ceil(decades / 6)));
  std::vector<double> ticks;
  for (int exponent = static_cast<int>(std::floor(std::log10(low))); exponent <= std::log10(high);
       ++exponent) {
    for (const int digit : {1, 2, 5}) {
      const double tick = digit * std::pow(10.0, exponent);
      const bool is_wanted = digit == 1 ? exponent % stride == 0 : decades < 2.5;
      if (is_wanted && tick >= low && tick <= high) {
        ticks.push_back(tick);
      }
    }
  }
  return ticks;
}

Axis value_axis(const LineChart& chart) {
  Axis axis;
  axis.log = chart.log_scale;
  axis.low = std::numeric_limits<double>::infinity();
  axis.high = -axis.low;
  for (const Series& series : chart.series) {
    for (const Point& point : series.points) {
      if (axis.can_show(point.value)) {
        axis.low = std::min(axis.low, point.value);
        axis.high = std::max(axis.high, point.value);
      }
    }
  }
  if (axis.low > axis.high) {
    return axis;  // nothing to draw
  }
  if (axis.log) {
    axis.low /= 1.1;
    axis.high *= 1.1;
    axis.ticks = log_ticks(axis.low, axis.high);
  } else {
    // A range so small that its ends hardly differ as numbers is drawn as one level.
    const double magnitude = std::max(std::abs(axis.low), std::abs(axis.high));
    const bool is_level = axis.high - axis.low <= 1e-9 * magnitude;
    const double margin = is_level ? (magnitude > 0 ? 0.1 * magnitude : 1) : 0.04 * (axis.high - axis.low);
    axis.low = axis.low >= 0 ? std::max(0.0, axis.low - margin) : axis.low - margin;
    axis.high += margin;
    axis.ticks = linear_ticks(axis.low, axis.high, 5);
  }
  return axis;
}

Axis step_axis(const LineChart& chart) {
  Axis axis{.low = std::numeric_limits<double>::infinity(), .high = 0, .log = false, .ticks = {}};
  for (const Series& series : chart.series) {
    for (const Point& point : series.points) {
      axis.low = std::min(axis.low, point.step);
      axis.high = std::max(axis.high, point.step);
    }
  }
  axis.low = std::min(axis.low, axis.high - 1);
  axis.ticks = linear_ticks(axis.low, axis.high, 5);
  return axis;
}

// "0.003", "1500", "20k", "3M".
std::string tick_text(double value) {
  for (const auto& [unit, letter] : {std::pair{1e9, "G"}, {1e6, "M"}, {1e3, "k"}}) {
    if (std::abs(value) >= std::max(unit, 1e4)) {
      return fmt::format("{:.6g}{}", value / unit, letter);
    }
  }
  return fmt::format("{:.6g}", value);
}

// At most two points for each of kMaxBuckets parts of the series: the least and the greatest value. A part
// with a gap keeps one.
std::vector<Point> thinned(const std::vector<Point>& points, const Axis& values) {
  if (points.size() <= 2 * kMaxBuckets) {
    return points;
  }
  std::vector<Point> out;
  for (std::size_t bucket = 0; bucket < kMaxBuckets; ++bucket) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(points.size() * bucket / kMaxBuckets);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>(points.size() * (bucket + 1) / kMaxBuckets);
    const auto gap = std::find_if(begin, end, [&](const Point& p) { return !values.can_show(p.value); });
    if (gap != end) {
      out.push_back(*gap);
      continue;
    }
    const auto less = [](const Point& a, const Point& b) { return a.value < b.value; };
    const auto [least, greatest] = std::minmax_element(begin, end, less);
    out.push_back(*std::min(least, greatest));
    if (least != greatest) {
      out.push_back(*std::max(least, greatest));
    }
  }
  return out;
}

std::string path_of(const Series& series, const Axis& steps, const Axis& values) {
  const bool dots = series.mark == Mark::kDots;
  std::string path;
  bool pen_down = false;
  for (const Point& point : thinned(series.points, values)) {
    if (!values.can_show(point.value)) {
      pen_down = false;
      continue;
    }
    path += fmt::format("{}{:.1f} {:.1f}{}", pen_down && !dots ? 'L' : 'M', kExtent * steps.share(point.step),
                        kExtent * (1 - values.share(point.value)), dots || !pen_down ? "h0" : "");
    pen_down = true;
  }
  return path;
}

std::string_view mark_class(Mark mark) {
  switch (mark) {
    case Mark::kLine:
      return "line";
    case Mark::kFaintLine:
      return "line faint";
    case Mark::kDashedLine:
      return "line dashed";
    case Mark::kDots:
      return "dots";
  }
  return "";
}

std::string legend(const LineChart& chart) {
  std::string html;
  for (const Series& series : chart.series) {
    if (!series.points.empty() && !series.label.empty()) {
      html += fmt::format(R"(<span class="key"><i class="c{} {}"></i>{}</span>)", series.color,
                          mark_class(series.mark), html_escape(series.label));
    }
  }
  return html;
}

std::string begin_figure(const std::string& title, const std::string& keys, i64 height_pixels) {
  return fmt::format(
      "<figure>\n<figcaption><b>{}</b>{}</figcaption>\n<div class=\"plot\" style=\"height:{}px\">\n",
      html_escape(title), keys, height_pixels);
}

std::string begin_svg(const std::string& label) {
  return fmt::format(
      R"(<svg viewBox="0 0 {0:g} {0:g}" preserveAspectRatio="none" role="img" aria-label="{1}">)", kExtent,
      html_escape(label));
}

}  // namespace

std::string line_chart(const LineChart& chart) {
  const Axis values = value_axis(chart);
  if (values.low > values.high) {
    return "";
  }
  const Axis steps = step_axis(chart);
  std::string html = begin_figure(chart.title, legend(chart), kChartHeight) + begin_svg(chart.title);
  std::string labels;
  std::string grid;
  for (const double tick : values.ticks) {
    const double top = 1 - values.share(tick);
    grid += fmt::format("M0 {:.1f}H{:g}", kExtent * top, kExtent);
    labels += fmt::format(R"(<span class="y" style="top:{:.2f}%">{}</span>)", 100 * top, tick_text(tick));
  }
  for (const double tick : steps.ticks) {
    labels += fmt::format(R"(<span class="x" style="left:{:.2f}%">{}</span>)", 100 * steps.share(tick),
                          tick_text(tick));
  }
  html += fmt::format("<path class=\"grid\" d=\"{}M0 {:g}H{:g}\"/>\n", grid, kExtent, kExtent);
  for (const Series& series : chart.series) {
    html += fmt::format("<path class=\"c{} {}\" d=\"{}\"/>\n", series.color, mark_class(series.mark),
                        path_of(series, steps, values));
  }
  return html + "</svg>\n" + labels + "\n</div>\n</figure>\n";
}

std::string heat_map(const std::string& title, const std::string& columns,
                     const std::vector<HeatMapRow>& rows) {
  std::size_t num_columns = 0;
  for (const HeatMapRow& row : rows) {
    num_columns = std::max(num_columns, row.relative.size());
  }
  if (num_columns == 0) {
    return "";
  }
  const double width = kExtent / static_cast<double>(num_columns);
  const double height = kExtent / static_cast<double>(rows.size());
  constexpr std::size_t kMostValues = 12;  // columns in which a number fits on a phone
  std::string cells;
  std::string labels;
  for (std::size_t y = 0; y < rows.size(); ++y) {
    const double top = static_cast<double>(y) * height;
    labels += fmt::format(R"(<span class="y" style="top:{:.2f}%">{}</span>)",
                          100 * (top + height / 2) / kExtent, html_escape(rows[y].label));
    for (std::size_t x = 0; x < rows[y].relative.size(); ++x) {
      const double load = rows[y].relative[x];
      const double left = static_cast<double>(x) * width;
      cells += fmt::format(
          R"(<rect class="{}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}" fill-opacity="{:.2f}">)",
          load < 1 ? "cold" : "hot", left, top, width, height, std::min(1.0, std::abs(load - 1)));
      cells += fmt::format("<title>{}, {} {}: {:.2f}</title></rect>\n", html_escape(rows[y].label),
                           html_escape(columns), x, load);
      if (num_columns <= kMostValues) {
        labels += fmt::format(R"(<span class="cell" style="left:{:.2f}%;top:{:.2f}%">{:.2f}</span>)",
                              100 * (left + width / 2) / kExtent, 100 * (top + height / 2) / kExtent, load);
      }
    }
  }
  for (const double tick : linear_ticks(0, static_cast<double>(num_columns - 1) + 0.5, 8)) {
    if (tick == std::floor(tick)) {
      labels += fmt::format(R"(<span class="x" style="left:{:.2f}%">{}</span>)",
                            100 * (tick + 0.5) * width / kExtent, tick_text(tick));
    }
  }
  constexpr std::string_view kKeys =
      R"(<span class="key"><i class="scale"></i>0, the mean, twice the mean and more</span>)";
  const i64 pixels = std::clamp<i64>(24 * std::ssize(rows), 48, 640);
  return begin_figure(title, std::string(kKeys), pixels) + begin_svg(title) + cells + "</svg>\n" + labels +
         "\n</div>\n</figure>\n";
}

std::vector<Point> smoothed(const std::vector<Point>& points, std::size_t radius) {
  const auto is_gap = [](const Point& point) { return !(std::abs(point.value) < kLargestDrawable); };
  std::vector<double> sums = {0};    // of the values before each point
  std::vector<double> counts = {0};  // how many of them are no gaps
  for (const Point& point : points) {
    sums.push_back(sums.back() + (is_gap(point) ? 0 : point.value));
    counts.push_back(counts.back() + (is_gap(point) ? 0 : 1));
  }
  std::vector<Point> out = points;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const std::size_t begin = i - std::min(i, radius);
    const std::size_t end = std::min(points.size(), i + radius + 1);
    out[i].value = is_gap(points[i]) ? std::numeric_limits<double>::quiet_NaN()
                                     : (sums[end] - sums[begin]) / (counts[end] - counts[begin]);
  }
  return out;
}

}  // namespace wych::train
