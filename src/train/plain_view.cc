// Model output is escaped to one line, so that every event stays one line for grep.
#include "train/plain_view.h"

#include <fmt/format.h>

#include "train/printable.h"
#include "train/run_text.h"

namespace wych::train {

void PlainView::header(const RunHeader& header) {
  for (const std::string& line : header_lines(header)) {
    print(line);
  }
}

void PlainView::step(const StepReport& report) {
  if (!has_stepped_ || report.step % interval_ == 0 || report.step == report.total_steps) {
    print(step_line(report));
  }
  has_stepped_ = true;
}

void PlainView::evaluated(const EvalReport& report) {
  print(fmt::format("[step={}] {}", report.step, evaluation_text(report)));
  if (report.final) {
    for (const std::string& line : comparison_lines(report)) {
      print(line);
    }
  }
}

void PlainView::sampled(i64 step, std::string_view prompt, std::string_view continuation) {
  print(fmt::format("[step={}] sample: {}{}", step, printable(prompt, LineBreaks::kEscape),
                    printable(continuation, LineBreaks::kEscape)));
}

void PlainView::message(std::string_view text) { print(printable(text, LineBreaks::kKeep)); }

void PlainView::print(std::string_view line) {
  // Not fmt::print, which throws: a reader that is gone or a full disk behind it does not end a run.
  (void)std::fwrite(line.data(), 1, line.size(), out_);
  (void)std::fputc('\n', out_);
  std::fflush(out_);
}

}  // namespace wych::train
