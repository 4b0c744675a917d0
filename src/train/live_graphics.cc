// Block elements have eight heights to a cell, braille four dots by two.
#include "train/live_graphics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <string_view>

#include "base/check.h"

namespace wych::train {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
// More than any terminal has dots in a row.
constexpr i64 kMostBuckets = 1024;

std::string repeat(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) {
    out += text;
  }
  return out;
}

std::string_view load_glyph(double ratio) {
  constexpr std::array<std::string_view, 8> kEighths = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const int eighths = std::clamp(static_cast<int>(std::lround(std::min(ratio, 2.0) * 4)), 1, 8);
  return ratio == 0 ? "×" : kEighths[static_cast<std::size_t>(eighths - 1)];
}

Style load_style(LoadGrade grade) {
  switch (grade) {
    case LoadGrade::kNear:
      return Style::kGreen;
    case LoadGrade::kOff:
      return Style::kYellow;
    case LoadGrade::kFar:
    case LoadGrade::kDead:
      return Style::kRed;
  }
  return Style::kNormal;
}

// Distance from the mean on a logarithmic scale: half the load is as far as twice the load.
double distance(double ratio) {
  return ratio > 0 ? std::abs(std::log(ratio)) : std::numeric_limits<double>::infinity();
}

// The load ratios of the cells that `columns` columns have room for.
std::vector<double> cell_ratios(std::span<const i64> loads, std::size_t columns) {
  const double mean = static_cast<double>(std::accumulate(loads.begin(), loads.end(), i64{0})) /
                      static_cast<double>(loads.size());
  const std::size_t cells = std::min(loads.size(), columns);
  std::vector<double> ratios;
  for (std::size_t cell = 0; cell < cells; ++cell) {
    double shown = 1;
    for (std::size_t i = cell * loads.size() / cells; i < (cell + 1) * loads.size() / cells; ++i) {
      const double ratio = mean > 0 ? static_cast<double>(loads[i]) / mean : 0;
      shown = distance(ratio) >= distance(shown) ? ratio : shown;
    }
    ratios.push_back(shown);
  }
  return ratios;
}

// A grid of dots, 2 x 4 to a character.
class Braille {
 public:
  Braille(int columns, int rows)
      : columns_(columns), dots_(static_cast<std::size_t>(columns) * static_cast<std::size_t>(rows), 0) {}

  // (0, 0) is the upper left dot.
  void set(int x, int y) {
    constexpr std::array<std::array<u8, 2>, 4> kBits = {
        {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}};
    const auto cell = static_cast<std::size_t>(i64{y / 4} * columns_ + x / 2);
    dots_[cell] = static_cast<u8>(dots_[cell] |
                                  kBits[static_cast<std::size_t>(y % 4)][static_cast<std::size_t>(x % 2)]);
  }

  [[nodiscard]] std::string row(int index) const {
    std::string text;
    for (int column = 0; column < columns_; ++column) {
      const u8 dots = dots_[static_cast<std::size_t>(i64{index} * columns_ + column)];
      if (dots == 0) {
        text += ' ';
      } else {  // U+2800 + dots in UTF-8
        text += {'\xe2', static_cast<char>(0xa0U | (dots >> 6U)), static_cast<char>(0x80U | (dots & 0x3fU))};
      }
    }
    return text;
  }

 private:
  int columns_;
  std::vector<u8> dots_;
};

// Joins the points by vertical strokes. A NaN interrupts the curve; what is above the top edge is not drawn,
// and the curve comes in from there.
void draw_curve(Braille& grid, std::span<const double> values, int height, const LossPlot& plot) {
  const double span = plot.top - plot.bottom;
  int previous = -1;
  for (std::size_t x = 0; x < values.size(); ++x) {
    if (!(values[x] <= plot.top)) {
      previous = std::isnan(values[x]) ? -1 : 0;
      continue;
    }
    const double depth = span > 0 ? (plot.top - values[x]) / span : 0.5;
    const int y = static_cast<int>(std::lround(depth * (height - 1)));
    const int from = previous < 0 ? y : previous + (y > previous ? 1 : y < previous ? -1 : 0);
    for (int dot = std::min(from, y); dot <= std::max(from, y); ++dot) {
      grid.set(static_cast<int>(x), dot);
    }
    previous = y;
  }
}

}  // namespace

void add_progress_bar(StyledLine& line, int columns, double fraction) {
  const int filled = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * columns);
  line.add(repeat("━", filled), Style::kCyan).add(repeat("─", columns - filled), Style::kDim);
}

LoadGrade load_grade(double ratio) {
  if (ratio == 0) {
    return LoadGrade::kDead;
  }
  const double away = distance(ratio);
  return away <= std::log(1.5) ? LoadGrade::kNear : away <= std::log(2.5) ? LoadGrade::kOff : LoadGrade::kFar;
}

void add_expert_loads(StyledLine& line, int columns, std::span<const i64> loads) {
  WYCH_CHECK(!loads.empty(), "a layer without experts");
  const std::vector<double> ratios = cell_ratios(loads, static_cast<std::size_t>(std::max(columns, 1)));
  const bool is_wide = static_cast<int>(ratios.size()) * 3 <= columns;
  for (const double ratio : ratios) {
    line.add(repeat(load_glyph(ratio), is_wide ? 2 : 1), load_style(load_grade(ratio)));
    line.add(is_wide ? " " : "");
  }
}

LossHistory::LossHistory(i64 total_steps)
    : total_steps_(total_steps), buckets_(static_cast<std::size_t>(std::min(total_steps, kMostBuckets))) {
  WYCH_CHECK(total_steps >= 1, "a history of {} steps", total_steps);
}

void LossHistory::add(i64 step, double loss) {
  if (step < 1 || step > total_steps_ || !std::isfinite(loss)) {
    return;
  }
  // Not step * buckets / total_steps, whose product could overflow.
  const double position = static_cast<double>(step - 1) / static_cast<double>(total_steps_);
  Bucket& bucket = buckets_[static_cast<std::size_t>(position * static_cast<double>(buckets_.size()))];
  bucket.sum += loss;
  ++bucket.count;
}

std::vector<double> LossHistory::resample(int count) const {
  const auto size = static_cast<std::size_t>(count);
  std::vector<double> means(size, kNaN);
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t begin = i * buckets_.size() / size;
    const std::size_t end = std::max(begin + 1, (i + 1) * buckets_.size() / size);
    Bucket stretch;
    for (std::size_t bucket = begin; bucket < end; ++bucket) {
      stretch.sum += buckets_[bucket].sum;
      stretch.count += buckets_[bucket].count;
    }
    if (stretch.count > 0) {
      means[i] = stretch.sum / static_cast<double>(stretch.count);
    }
  }
  return means;
}

LossPlot plot_losses(const LossHistory& history, int columns, int rows) {
  const std::vector<double> values = history.resample(columns * 2);
  std::vector<double> known;
  std::copy_if(values.begin(), values.end(), std::back_inserter(known),
               [](double v) { return !std::isnan(v); });
  std::sort(known.begin(), known.end());
  LossPlot plot;
  plot.top = known.empty() ? kNaN : known[(known.size() - 1) * 19 / 20];
  plot.bottom = known.empty() ? kNaN : known.front();
  Braille grid(columns, rows);
  draw_curve(grid, values, rows * 4, plot);
  for (int row = 0; row < rows; ++row) {
    plot.rows.push_back(grid.row(row));
  }
  return plot;
}

}  // namespace wych::train
