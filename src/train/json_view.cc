// Keys are Olmo-core's metric names where it has one.
#include "train/json_view.h"

#include <fmt/format.h>

#include <cmath>

#include "io/json.h"

namespace wych::train {

void JsonView::header(const RunHeader& header) {
  print(io::JsonObject()
            .add("event", "start")
            .add("name", header.name)
            .add("dir", header.dir)
            .add("model", header.model)
            .add("data", header.data)
            .add("device", header.device)
            .add("parameters", header.total_parameters)
            .add("active_parameters", header.active_parameters)
            .add("resumed_from", header.resumed_from)
            .add("first_step", header.first_step)
            .add("total_steps", header.total_steps)
            .add("batch_tokens", header.batch_tokens)
            .text());
}

void JsonView::step(const StepReport& report) {
  const bool is_due = !has_stepped_ || report.step % interval_ == 0 || report.step == report.total_steps;
  has_stepped_ = true;
  if (!is_due) {
    return;
  }
  io::JsonObject object;
  object.add("event", "step")
      .add("step", report.step)
      .add("total_steps", report.total_steps)
      .add("epoch", report.epoch)
      .add("train/CE loss", report.ce)
      .add("train/PPL", std::exp(report.ce))
      .add("train/load balancing loss", report.balance)
      .add("optim/total grad norm", report.grad_norm)
      .add("optim/LR (group 0)", report.learning_rate)
      .add("optim/step skipped", report.skipped || report.non_finite)
      .add("throughput/total tokens", report.tokens)
      .add("throughput/device/TPS", report.tokens_per_second)
      .add("train/load imbalance", report.imbalance)
      .add("elapsed_seconds", report.elapsed_seconds)
      .add("eta_seconds", report.eta_seconds);
  print(object.text());
}

void JsonView::evaluated(const EvalReport& report) {
  io::JsonObject object;
  object.add("event", "evaluation")
      .add("step", report.step)
      .add("final", report.final)
      .add("CE loss", report.ce)
      .add("PPL", std::exp(report.ce));
  const auto add_known = [&object](std::string_view key, double value) {
    if (value > 0) {
      object.add(key, value);
    }
  };
  add_known("bits_per_byte", report.bits_per_byte);
  add_known("bigram CE loss", report.bigram_ce);
  add_known("bigram bits_per_byte", report.bigram_bits_per_byte);
  add_known("unigram CE loss", report.unigram_ce);
  add_known("unigram bits_per_byte", report.unigram_bits_per_byte);
  print(object.text());
}

void JsonView::sampled(i64 step, std::string_view prompt, std::string_view continuation) {
  print(io::JsonObject()
            .add("event", "sample")
            .add("step", step)
            .add("prompt", prompt)
            .add("continuation", continuation)
            .text());
}

void JsonView::message(std::string_view text) {
  print(io::JsonObject().add("event", "message").add("text", text).text());
}

void JsonView::print(std::string_view object) {
  // Not fmt::print, which throws: a reader that is gone or a full disk behind it does not end a run.
  (void)std::fwrite(object.data(), 1, object.size(), out_);
  (void)std::fputc('\n', out_);
  std::fflush(out_);
}

}  // namespace wych::train
