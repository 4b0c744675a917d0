// A frame is: up to where the area begins, lines that scroll away, the area, clear what is left below it.
#include "train/live_view.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "train/printable.h"
#include "train/run_folder.h"
#include "train/run_text.h"

namespace wych::train {
namespace {

constexpr std::chrono::milliseconds kFrameTime{100};
// Wider areas are harder to read, not easier.
constexpr int kMostColumns = 120;
constexpr int kColumnsIfUnknown = 80;
constexpr int kRowsIfUnknown = 24;
constexpr int kPlotRows = 3;
constexpr int kMargin = 2;
constexpr int kPlotLabelColumns = 9;
constexpr int kExpertLabelColumns = 14;  // margin included
constexpr int kExpertNumberColumns = 11;
// Weight of the past: the loss is shown over about twenty steps.
constexpr double kLossDecay = 0.95;

// Begin: one screen update (terminals that do not know the mode ignore it), cursor hidden, no wrapping.
constexpr std::string_view kBeginFrame = "\x1b[?2026h\x1b[?25l\x1b[?7l";
constexpr std::string_view kEndFrame = "\x1b[?7h\x1b[?25h\x1b[?2026l";
constexpr std::string_view kClearLine = "\x1b[K";
constexpr std::string_view kClearBelow = "\x1b[J";

std::string step_label(i64 step) { return fmt::format("step {:<6} ", step); }

// Puts pieces side by side, each whole, on as many lines as they need.
class Flow {
 public:
  explicit Flow(StyledLine empty) : empty_(std::move(empty)) {}

  void add(std::string_view label, std::string_view value, Style style = Style::kNormal) {
    const int width = display_width(label) + 1 + display_width(value);
    if (lines_.empty() || lines_.back().room() < width + kGap) {
      lines_.push_back(empty_);
      lines_.back().pad_to(kMargin);
    } else {
      lines_.back().pad_to(lines_.back().width() + kGap);
    }
    lines_.back().add(label, Style::kDim).add(" ").add(value, style);
  }
  [[nodiscard]] std::vector<StyledLine> lines() const { return lines_; }

 private:
  static constexpr int kGap = 3;
  StyledLine empty_;
  std::vector<StyledLine> lines_;
};

}  // namespace

LiveView::LiveView(const Terminal& terminal, i64 interval, std::FILE* out)
    : terminal_(terminal), interval_(interval), out_(out), size_(size()) {}

// One column stays free: after a character in the last one, terminals disagree on where the cursor is.
LiveView::Size LiveView::size() const {
  winsize window{};
  const bool is_known = ioctl(fileno(out_), TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
  int columns = is_known ? window.ws_col : kColumnsIfUnknown;
  if (terminal_.columns > 0) {
    columns = is_known ? std::min(columns, terminal_.columns) : terminal_.columns;
  }
  return {std::clamp(columns - 1, 1, kMostColumns),
          is_known && window.ws_row > 0 ? window.ws_row : kRowsIfUnknown};
}

void LiveView::header(const RunHeader& header) {
  std::vector<StyledLine> lines;
  append_titled(lines, "", header_lines(header));
  print_above(lines);
}

void LiveView::step(const StepReport& report) {
  report_ = report;
  follow_loss(report);
  const auto now = std::chrono::steady_clock::now();
  if (now - last_frame_ >= kFrameTime) {
    print_above({});
    last_frame_ = now;
  }
}

void LiveView::follow_loss(const StepReport& report) {
  if (!history_) {
    history_.emplace(std::max<i64>(report.total_steps, 1));
  }
  history_->add(report.step, report.ce);
  if (std::isfinite(report.ce)) {
    loss_.weighted_sum = kLossDecay * loss_.weighted_sum + report.ce;
    loss_.weight = kLossDecay * loss_.weight + 1;
  }
  if (report.step % interval_ == 0) {
    if (loss_.at_interval > 0) {
      loss_.change = loss_.value() - loss_.at_interval;
    }
    loss_.at_interval = loss_.value();
  }
}

void LiveView::evaluated(const EvalReport& report) {
  std::vector<StyledLine> lines;
  append_wrapped(lines, step_label(report.step), "", evaluation_text(report), Style::kNormal);
  if (report.final) {
    lines.push_back(line());
    append_titled(lines, std::string(kMargin, ' '), comparison_lines(report));
  }
  print_above(lines);
}

void LiveView::sampled(i64 step, std::string_view prompt, std::string_view continuation) {
  std::vector<StyledLine> lines;
  append_wrapped(lines, step_label(step), prompt, continuation, Style::kDim);
  print_above(lines);
}

void LiveView::message(std::string_view text) {
  std::vector<StyledLine> lines;
  append_wrapped(lines, "", "", text, Style::kNormal);
  print_above(lines);
}

void LiveView::finish() { print_above({}); }

void LiveView::append_titled(std::vector<StyledLine>& lines, std::string_view indent,
                             const std::vector<std::string>& texts) const {
  for (std::size_t i = 0; i < texts.size(); ++i) {
    append_wrapped(lines, indent, i == 0 ? texts[i] : "", i == 0 ? "" : texts[i], Style::kNormal);
  }
}

void LiveView::append_wrapped(std::vector<StyledLine>& lines, std::string_view label, std::string_view bold,
                              std::string_view rest, Style rest_style) const {
  const std::string beginning = printable(bold, LineBreaks::kKeep);
  const std::string text = beginning + printable(rest, LineBreaks::kKeep);
  const int indent = std::min(display_width(label), size_.columns / 2);
  for (const std::string_view piece : wrap(text, std::max(1, size_.columns - indent))) {
    const auto offset = static_cast<std::size_t>(piece.data() - text.data());
    const std::size_t bold_bytes =
        offset < beginning.size() ? std::min(beginning.size() - offset, piece.size()) : 0;
    StyledLine line_of_piece = line();
    line_of_piece.add(fit_columns(label, indent), Style::kDim).pad_to(indent);
    line_of_piece.add(piece.substr(0, bold_bytes), Style::kBold).add(piece.substr(bold_bytes), rest_style);
    lines.push_back(line_of_piece);
    label = "";
  }
}

void LiveView::print_above(const std::vector<StyledLine>& lines) {
  size_ = size();
  std::string frame(kBeginFrame);
  // A terminal that became narrower has broken the lines it shows into several.
  int rows = 0;
  for (const int width : drawn_) {
    rows += std::max(1, (width + size_.columns) / (size_.columns + 1));
  }
  frame += '\r';
  if (rows > 0) {
    frame += fmt::format("\x1b[{}A", rows);
  }
  const auto append = [&frame](const StyledLine& line) {
    frame += line.text();
    frame += kClearLine;
    frame += '\n';
  };
  for (const StyledLine& line : lines) {
    append(line);
  }
  drawn_.clear();
  for (const StyledLine& line : status_area()) {
    append(line);
    drawn_.push_back(line.width());
  }
  frame += kClearBelow;
  frame += kEndFrame;
  std::fwrite(frame.data(), 1, frame.size(), out_);
  std::fflush(out_);
}

std::vector<StyledLine> LiveView::status_area() const {
  if (!report_) {
    return {};
  }
  std::vector<StyledLine> area = {line(), progress_line()};
  const auto append = [&area](const std::vector<StyledLine>& lines) {
    area.insert(area.end(), lines.begin(), lines.end());
  };
  append(number_lines());
  // The cursor needs a row below the area, and a row of events should stay in sight.
  const int room = size_.rows - 2 - static_cast<int>(area.size());
  const bool has_room_for_plot =
      room >= kPlotRows + std::min(static_cast<int>(report_->expert_counts.size()), kPlotRows);
  if (has_room_for_plot) {
    append(plot_lines());
  }
  append(expert_lines(room - (has_room_for_plot ? kPlotRows : 0)));
  area.resize(static_cast<std::size_t>(std::clamp(size_.rows - 2, 0, static_cast<int>(area.size()))), line());
  return area;
}

double LiveView::fraction_done() const {
  return static_cast<double>(report_->step) / static_cast<double>(std::max<i64>(report_->total_steps, 1));
}

std::string LiveView::progress_text() const {
  const std::string total = fmt::format("{}", report_->total_steps);
  return fmt::format("  {:>{}}/{}  {:>3.0f} %  {}, {} left", report_->step, total.size(), total,
                     std::floor(100 * fraction_done()), duration_text(report_->elapsed_seconds),
                     duration_text(report_->eta_seconds));
}

// The bar and the plot below it have the same columns, so that the curve ends where the bar does.
int LiveView::bar_columns() const {
  const int room = size_.columns - kMargin - display_width(progress_text());
  return std::max(0, std::min(room, size_.columns * 5 / 8));
}

StyledLine LiveView::progress_line() const {
  StyledLine progress = line();
  progress.pad_to(kMargin);
  add_progress_bar(progress, bar_columns(), fraction_done());
  return progress.add(progress_text(), Style::kBold);
}

std::vector<StyledLine> LiveView::number_lines() const {
  Flow flow(line());
  flow.add("loss", fmt::format("{:.4f}", loss_.value()), Style::kBold);
  if (loss_.change) {
    flow.add("change", fmt::format("{:+.4f}", *loss_.change),
             *loss_.change <= 0 ? Style::kGreen : Style::kYellow);
  }
  flow.add("tokens/s", grouped_digits(std::llround(report_->tokens_per_second)));
  flow.add("lr", fmt::format("{:.2e}", report_->learning_rate));
  flow.add("grad norm", fmt::format("{:.3f}", report_->grad_norm));
  if (!report_->expert_counts.empty()) {
    flow.add("imbalance", fmt::format("{:.2f}", report_->imbalance));
  }
  if (report_->epoch > 1) {
    flow.add("epoch", fmt::format("{}", report_->epoch));
  }
  if (report_->non_finite || report_->skipped) {
    flow.add("update", report_->non_finite ? "not finite" : "skipped", Style::kRed);
  }
  return flow.lines();
}

std::vector<StyledLine> LiveView::plot_lines() const {
  const int columns = std::min(bar_columns(), size_.columns - kMargin - kPlotLabelColumns);
  if (columns < 1) {
    return {};
  }
  const LossPlot plot = plot_losses(*history_, columns, kPlotRows);
  std::vector<StyledLine> lines;
  for (const std::string& row : plot.rows) {
    lines.push_back(line().pad_to(kMargin).add(row, Style::kCyan));
  }
  if (!std::isnan(plot.top)) {
    lines.front().add(fmt::format("  {:.2f}", plot.top), Style::kDim);
    lines.back().add(fmt::format("  {:.2f}", plot.bottom), Style::kDim);
  }
  return lines;
}

// At most `most` lines: a layer each, the last one saying how many are left out.
std::vector<StyledLine> LiveView::expert_lines(int most) const {
  const int num_layers = static_cast<int>(report_->expert_counts.size());
  if (most < 1 || num_layers == 0) {
    return {};
  }
  const int shown = num_layers <= most ? num_layers : most - 1;
  std::vector<StyledLine> lines;
  for (int layer = 0; layer < shown; ++layer) {
    const std::vector<i64>& counts = report_->expert_counts[static_cast<std::size_t>(layer)];
    StyledLine row = line();
    row.pad_to(kMargin).add(fmt::format("{:<7} {:>3}", layer == 0 ? "experts" : "", layer), Style::kDim);
    row.pad_to(kExpertLabelColumns);
    add_expert_loads(row, std::max(1, row.room() - kExpertNumberColumns), counts);
    row.add(fmt::format("  max {:.2f}", load_imbalance(counts)), Style::kDim);
    lines.push_back(row);
  }
  if (shown < num_layers) {
    lines.push_back(
        line().pad_to(kMargin).add(fmt::format("and {} more layers", num_layers - shown), Style::kDim));
  }
  return lines;
}

}  // namespace wych::train
