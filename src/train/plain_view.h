// PlainView: a run as plain lines, for pipes, log files and schedulers. No escape codes, one event a line,
// each line flushed.
#pragma once

#include "train/run_view.h"

namespace wych::train {

class PlainView final : public RunView {
 public:
  // A step line every `interval` steps and for the first and the last one.
  PlainView(i64 interval, std::FILE* out) : interval_(interval), out_(out) {}

  void header(const RunHeader& header) override;
  void step(const StepReport& report) override;
  void evaluated(const EvalReport& report) override;
  void sampled(i64 step, std::string_view prompt, std::string_view continuation) override;
  void message(std::string_view text) override;
  void finish() override {}

 private:
  void print(std::string_view line);

  i64 interval_;
  std::FILE* out_;
  bool has_stepped_ = false;
};

}  // namespace wych::train
