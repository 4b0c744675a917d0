// LiveView: a run on a terminal. Events scroll by; below them a status area is redrawn in place.
// Invariants: a frame is one write; no line is wider than the terminal; between frames the terminal is in its
// normal state with the cursor below the area, so a process that is killed leaves nothing to repair.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "train/live_graphics.h"
#include "train/run_view.h"
#include "train/styled_line.h"

namespace wych::train {

class LiveView final : public RunView {
 public:
  // `interval`: steps over which the change of the loss is shown.
  LiveView(const Terminal& terminal, i64 interval, std::FILE* out);

  void header(const RunHeader& header) override;
  void step(const StepReport& report) override;
  void evaluated(const EvalReport& report) override;
  void sampled(i64 step, std::string_view prompt, std::string_view continuation) override;
  void message(std::string_view text) override;
  void finish() override;

 private:
  struct Size {
    int columns;  // that may be used
    int rows;
  };
  // The loss without the noise of single batches, and its change over an interval.
  struct SmoothLoss {
    double weighted_sum = 0;
    double weight = 0;
    double at_interval = 0;
    std::optional<double> change;
    [[nodiscard]] double value() const { return weight > 0 ? weighted_sum / weight : 0; }
  };

  [[nodiscard]] Size size() const;
  [[nodiscard]] StyledLine line() const { return {size_.columns, terminal_.color}; }
  void follow_loss(const StepReport& report);

  // Prints lines above the status area and draws the area anew.
  void print_above(const std::vector<StyledLine>& lines);
  // Adds `bold` + `rest` on as many lines as they need, the first beginning with `label`.
  void append_wrapped(std::vector<StyledLine>& lines, std::string_view label, std::string_view bold,
                      std::string_view rest, Style rest_style) const;
  // Adds `texts`, the first one bold.
  void append_titled(std::vector<StyledLine>& lines, std::string_view indent,
                     const std::vector<std::string>& texts) const;
  [[nodiscard]] std::vector<StyledLine> status_area() const;
  [[nodiscard]] StyledLine progress_line() const;
  [[nodiscard]] std::vector<StyledLine> number_lines() const;
  [[nodiscard]] std::vector<StyledLine> plot_lines() const;
  [[nodiscard]] std::vector<StyledLine> expert_lines(int most) const;
  [[nodiscard]] double fraction_done() const;
  [[nodiscard]] std::string progress_text() const;
  [[nodiscard]] int bar_columns() const;

  const Terminal terminal_;
  const i64 interval_;
  std::FILE* const out_;
  Size size_;
  std::vector<int> drawn_;  // widths of the lines of the area on the screen
  std::chrono::steady_clock::time_point last_frame_{};
  std::optional<StepReport> report_;
  SmoothLoss loss_;
  std::optional<LossHistory> history_;
};

}  // namespace wych::train
