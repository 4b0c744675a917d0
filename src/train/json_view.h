// JsonView: a run as JSON lines for other programs. Every object has "event"; steps carry the names of
// metrics.jsonl.
#pragma once

#include "train/run_view.h"

namespace wych::train {

class JsonView final : public RunView {
 public:
  // A step every `interval` steps and the first and the last one.
  JsonView(i64 interval, std::FILE* out) : interval_(interval), out_(out) {}

  void header(const RunHeader& header) override;
  void step(const StepReport& report) override;
  void evaluated(const EvalReport& report) override;
  void sampled(i64 step, std::string_view prompt, std::string_view continuation) override;
  void message(std::string_view text) override;
  void finish() override {}

 private:
  void print(std::string_view object);

  i64 interval_;
  std::FILE* out_;
  bool has_stepped_ = false;
};

}  // namespace wych::train
