// A chart is a plot over two axes (svg_chart.h): places are computed once, in the drawing's own units for
// curves and in per cent for labels.
#include "train/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "train/html.h"
#include "train/run_text.h"

namespace wych::train {
namespace {

constexpr double kExtent = 1000;           // of the drawing in its own units, both ways
constexpr std::size_t kMaxBuckets = 400;   // per series; each draws its extremes
constexpr std::size_t kMaxStrips = 80;     // wide enough to hit
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

// Ticks at 1, 2, 2.5 or 5 times a power of ten, about `count` of them.
std::vector<double> linear_ticks(double low, double high, int count) {
  const double rough = (high - low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double digit = rough / power;
  const double step = power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 2.5 ? 2.5 : digit <= 5 ? 5 : 10);
  const double first = std::ceil(low / step - 1e-9);
  std::vector<double> ticks;
  for (int i = 0; i <= 2 * count && (first + i) * step <= high + 1e-9 * step; ++i) {
    ticks.push_back((first + i) * step + 0.0);  // no minus before zero
  }
  return ticks;
}

// Powers of ten, every so many where there are more than six; twice and five times them in a short range;
// what a linear axis has in one so short that none of those are in it.
std::vector<double> log_ticks(double low, double high) {
  const double decades = std::log10(high / low);
  const int stride = std::max(1, static_cast<int>(std::ceil(decades / 6)));
  std::vector<double> ticks;
  for (int exponent = static_cast<int>(std::floor(std::log10(low))); exponent <= std::log10(high);
       ++exponent) {
    for (const int digit : {1, 2, 5}) {
      const double tick = digit * std::pow(10.0, exponent);
      const bool is_wanted = digit == 1 ? exponent % stride == 0 : decades < 3.2;
      if (is_wanted && tick >= low && tick <= high) {
        ticks.push_back(tick);
      }
    }
  }
  return ticks.size() > 1 ? ticks : linear_ticks(low, high, 4);
}

// A chart with what all its series share.
class Plot {
 public:
  explicit Plot(const LineChart& chart) : chart_(chart) {
    for (const Series& series : chart.series) {
      for (const Point& point : series.points) {
        by_tokens_ = by_tokens_ || (series.mark != Mark::kLevel && point.tokens > 0);
      }
    }
    set_values();
    set_across();
  }

  [[nodiscard]] bool is_empty() const { return values_.low > values_.high; }

  [[nodiscard]] std::string html() const {
    std::string labels;
    std::string grid;
    for (const double tick : values_.ticks) {
      const double top = 1 - values_.share(tick);
      grid += fmt::format("M0 {:.1f}H{:g}", kExtent * top, kExtent);
      labels += fmt::format(R"(<span class="y" style="top:{:.2f}%">{}</span>)", 100 * top, tick_text(tick));
    }
    for (const double tick : across_.ticks) {
      labels += fmt::format(R"(<span class="x" style="left:{:.2f}%">{}</span>)", 100 * across_.share(tick),
                            tick_text(tick));
    }
    labels += fmt::format(R"(<span class="across">{}</span>)", by_tokens_ ? "tokens" : "steps");
    std::string html = fmt::format(
        "<figure>\n<figcaption><b>{}</b>{}{}</figcaption>\n<div class=\"plot\">\n", html_escape(chart_.title),
        chart_.unit.empty() ? "" : fmt::format("<span>{}</span>", html_escape(chart_.unit)), legend());
    html += fmt::format(
        R"(<svg viewBox="0 0 {0:g} {0:g}" preserveAspectRatio="none" role="img" aria-label="{1}">)", kExtent,
        html_escape(summary()));
    html += fmt::format("<path class=\"grid\" d=\"{}M0 {:g}H{:g}\"/>\n", grid, kExtent, kExtent);
    for (const Series& series : chart_.series) {
      if (series.mark == Mark::kLevel) {
        labels += level_label(series);
      }
      const bool is_dot = series.mark == Mark::kLine && series.points.size() == 1;
      html += fmt::format("<path class=\"c{} {}\" d=\"{}\"/>\n", series.color,
                          mark_class(is_dot ? Mark::kDots : series.mark), path_of(series));
    }
    return html + "</svg>\n" + labels + "\n" + detail_strips(chart_.id, details()) + "</div>\n</figure>\n";
  }

 private:
  [[nodiscard]] double across(const Point& point) const { return by_tokens_ ? point.tokens : point.step; }
  [[nodiscard]] bool can_show(const Point& point, Mark mark) const {
    return (mark == Mark::kTicks || values_.can_show(point.value)) && (!across_.log || across(point) > 0);
  }

  void set_values() {
    values_.log = chart_.log_values;
    values_.low = std::numeric_limits<double>::infinity();
    values_.high = -values_.low;
    for (const Series& series : chart_.series) {
      for (const Point& point : series.points) {
        if (series.mark != Mark::kTicks && values_.can_show(point.value)) {
          values_.low = std::min(values_.low, point.value);
          values_.high = std::max(values_.high, point.value);
        }
      }
    }
    if (is_empty()) {
      return;
    }
    if (values_.log) {
      values_.low /= 1.1;
      values_.high *= 1.1;
      values_.ticks = log_ticks(values_.low, values_.high);
      return;
    }
    // A range so small that its ends hardly differ as numbers is drawn as one level.
    const double magnitude = std::max(std::abs(values_.low), std::abs(values_.high));
    const bool is_level = values_.high - values_.low <= 1e-9 * magnitude;
    const double margin =
        is_level ? (magnitude > 0 ? 0.1 * magnitude : 1) : 0.04 * (values_.high - values_.low);
    values_.low = values_.low >= 0 ? std::max(0.0, values_.low - margin) : values_.low - margin;
    values_.high += margin;
    values_.ticks = linear_ticks(values_.low, values_.high, 5);
  }

  void set_across() {
    across_.log = chart_.log_x;
    across_.low = std::numeric_limits<double>::infinity();
    across_.high = 0;
    for (const Series& series : chart_.series) {
      for (const Point& point : series.points) {
        if (series.mark != Mark::kLevel && (!across_.log || across(point) > 0)) {
          across_.low = std::min(across_.low, across(point));
          across_.high = std::max(across_.high, across(point));
        }
      }
    }
    if (!(across_.low < across_.high)) {  // one point, or none
      across_.high = std::max(across_.high, 1.0);
      across_.low = across_.log ? across_.high / 10 : 0;
    }
    across_.ticks =
        across_.log ? log_ticks(across_.low, across_.high) : linear_ticks(across_.low, across_.high, 6);
  }

  // At most two points for each of kMaxBuckets parts of the series: the least and the greatest value. A part
  // with a gap keeps one.
  [[nodiscard]] std::vector<Point> thinned(const Series& series) const {
    const std::vector<Point>& points = series.points;
    if (points.size() <= 2 * kMaxBuckets) {
      return points;
    }
    std::vector<Point> out;
    for (std::size_t bucket = 0; bucket < kMaxBuckets; ++bucket) {
      const auto begin = points.begin() + static_cast<std::ptrdiff_t>(points.size() * bucket / kMaxBuckets);
      const auto end =
          points.begin() + static_cast<std::ptrdiff_t>(points.size() * (bucket + 1) / kMaxBuckets);
      const auto gap = std::find_if(begin, end, [&](const Point& p) { return !can_show(p, series.mark); });
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

  [[nodiscard]] std::string path_of(const Series& series) const {
    if (series.points.empty()) {
      return "";
    }
    if (series.mark == Mark::kLevel) {
      return fmt::format("M0 {0:.1f}H{1:g}", kExtent * (1 - values_.share(series.points[0].value)), kExtent);
    }
    const bool dots = series.mark == Mark::kDots;
    std::string path;
    bool pen_down = false;
    for (const Point& point : thinned(series)) {
      if (!can_show(point, series.mark)) {
        pen_down = false;
        continue;
      }
      const double x = kExtent * across_.share(across(point));
      if (series.mark == Mark::kTicks) {
        path += fmt::format("M{:.1f} 0V50", x);
        continue;
      }
      path += fmt::format("{}{:.1f} {:.1f}{}", pen_down && !dots ? 'L' : 'M', x,
                          kExtent * (1 - values_.share(point.value)), dots || !pen_down ? "h0" : "");
      pen_down = true;
    }
    return path;
  }

  // Whether a curve ends so close to a level that it would cross its label.
  [[nodiscard]] bool ends_near(double value) const {
    constexpr double kLabelHeight = 0.09;  // of a small chart
    return std::any_of(chart_.series.begin(), chart_.series.end(), [&](const Series& series) {
      return series.mark == Mark::kLine && !series.points.empty() &&
             values_.can_show(series.points.back().value) &&
             std::abs(values_.share(series.points.back().value) - values_.share(value)) < kLabelHeight;
    });
  }

  [[nodiscard]] std::string level_label(const Series& series) const {
    if (series.points.empty() || !values_.can_show(series.points[0].value)) {
      return "";
    }
    const double value = series.points[0].value;
    return fmt::format(R"(<span class="level{}" style="top:{:.2f}%">{} {}</span>)",
                       ends_near(value) ? " left" : "", 100 * (1 - values_.share(value)),
                       html_escape(series.label), value_text(value));
  }

  [[nodiscard]] std::string legend() const {
    std::string html;
    int num_keys = 0;
    for (const Series& series : chart_.series) {
      if (!series.points.empty() && !series.label.empty() && series.mark != Mark::kLevel) {
        ++num_keys;
        html += fmt::format(R"(<span class="key"><i class="c{} {}"></i>{}</span>)", series.color,
                            mark_class(series.mark), html_escape(series.label));
      }
    }
    return num_keys > 1 ? html : "";  // one curve is what the title says
  }

  // "Loss, nats per token. training, smoothed: from 7.62 to 4.21."
  [[nodiscard]] std::string summary() const {
    std::string text = chart_.title + (chart_.unit.empty() ? "" : ", " + chart_.unit) + ".";
    for (const Series& series : chart_.series) {
      const auto shown = [&](const Point& point) { return values_.can_show(point.value); };
      const auto first = std::find_if(series.points.begin(), series.points.end(), shown);
      const auto last = std::find_if(series.points.rbegin(), series.points.rend(), shown);
      if (series.mark == Mark::kLine && first != series.points.end()) {
        text += fmt::format(" {}{}from {} to {}.", series.label, series.label.empty() ? "" : ": ",
                            value_text(first->value), value_text(last->value));
      }
    }
    return text;
  }

  // What each strip says: the last point of every series in it.
  [[nodiscard]] std::vector<std::string> details() const {
    std::size_t most = 1;
    for (const Series& series : chart_.series) {
      most = std::max(most, series.points.size());
    }
    std::vector<std::string> lines(std::min(most, kMaxStrips));
    std::vector<Point> last(lines.size());
    for (const Series& series : chart_.series) {
      if (series.mark == Mark::kLevel || series.label.empty()) {
        continue;
      }
      std::vector<std::string> own(lines.size());
      for (const Point& point : series.points) {
        if (!can_show(point, series.mark)) {
          continue;
        }
        const double share = across_.share(across(point));
        const auto strip =
            static_cast<std::size_t>(std::clamp(share, 0.0, 1 - 1e-9) * static_cast<double>(lines.size()));
        own[strip] = "\n" + series.label + (series.mark == Mark::kTicks ? "" : " " + value_text(point.value));
        last[strip] = point.step > last[strip].step ? point : last[strip];
      }
      for (std::size_t strip = 0; strip < lines.size(); ++strip) {
        lines[strip] += own[strip];
      }
    }
    for (std::size_t strip = 0; strip < lines.size(); ++strip) {
      if (!lines[strip].empty()) {
        lines[strip] = point_text(last[strip]) + lines[strip];
      }
    }
    return lines;
  }

  // "step 120, 245,760 tokens"
  static std::string point_text(const Point& point) {
    return fmt::format("step {}", grouped_digits(static_cast<i64>(point.step))) +
           (point.tokens > 0 ? fmt::format(", {} tokens", grouped_digits(static_cast<i64>(point.tokens)))
                             : "");
  }

  static std::string value_text(double value) {
    return std::abs(value) >= 1e4 ? tick_text(std::round(value / 10) * 10) : fmt::format("{:.4g}", value);
  }

  static std::string_view mark_class(Mark mark) {
    switch (mark) {
      case Mark::kLine:
        return "line";
      case Mark::kFaintLine:
        return "line faint";
      case Mark::kLevel:
        return "line level";
      case Mark::kDots:
        return "dots";
      case Mark::kTicks:
        return "line ticks";
    }
    return "";
  }

  const LineChart& chart_;
  bool by_tokens_ = false;
  Axis values_;
  Axis across_;
};

}  // namespace

std::string line_chart(const LineChart& chart) {
  const Plot plot(chart);
  return plot.is_empty() ? "" : plot.html();
}

std::string detail_strips(std::string_view id, const std::vector<std::string>& texts) {
  std::string html =
      fmt::format("<div class=\"strips\" style=\"--w:{:.4g}%\">", 100.0 / static_cast<double>(texts.size()));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (!texts[i].empty()) {
      html += fmt::format(R"(<input type="radio" name="{}" aria-label="{}"{} style="--i:{}"/>)", id,
                          html_escape(texts[i]), 2 * i >= texts.size() ? R"( class="r")" : "", i);
    }
  }
  return html + "</div>\n";
}

std::string tick_text(double value) {
  for (const auto& [unit, letter] : {std::pair{1e9, "G"}, {1e6, "M"}, {1e3, "k"}}) {
    if (std::abs(value) >= std::max(unit, 1e4)) {
      return fmt::format("{:.6g}{}", value / unit, letter);
    }
  }
  return fmt::format("{:.6g}", value);
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
