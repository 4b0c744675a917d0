// Plain strings; where they go and how they are coloured is the views' matter.
#include "train/run_text.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

namespace wych::train {
namespace {

// Appends every line of `text`, the first with `label`, the others below it.
void add_labelled(std::vector<std::string>& lines, std::string_view label, std::string_view text) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    lines.push_back(fmt::format("  {:<11}{}", label, line));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    label = "";
  }
}

}  // namespace

std::string duration_text(double seconds) {
  if (!(seconds >= 0 && seconds < 1e12)) {
    return "?";
  }
  const auto whole = static_cast<i64>(std::llround(seconds));
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string grouped_digits(i64 value) {
  std::string digits = fmt::format("{}", value);
  const std::ptrdiff_t first = value < 0 ? 1 : 0;
  for (std::ptrdiff_t i = static_cast<std::ptrdiff_t>(digits.size()) - 3; i > first; i -= 3) {
    digits.insert(digits.begin() + i, ',');
  }
  return digits;
}

std::string short_count(i64 value) {
  if (value < 10000) {
    return fmt::format("{}", value);
  }
  double scaled = static_cast<double>(value);
  std::string_view units = "kMBT";
  scaled /= 1e3;
  while (scaled >= 999.5 && units.size() > 1) {
    scaled /= 1e3;
    units.remove_prefix(1);
  }
  const int decimals = scaled < 9.995 ? 2 : scaled < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", scaled, decimals, units.front());
}

std::string model_text(const config::ModelConfig& model) {
  std::string text = fmt::format("{} layers, d_model {}, {} heads of {}", model.n_layers, model.d_model,
                                 model.attention.n_heads, model.attention.head_dim);
  i64 num_dense = 0;
  for (i64 layer = 0; layer < model.n_layers; ++layer) {
    num_dense += model.is_dense_layer(layer) ? 1 : 0;
  }
  if (num_dense < model.n_layers) {
    text +=
        fmt::format(", {} experts top-{} of {}", model.moe.experts, model.moe.top_k, model.moe.expert_hidden);
    text += model.moe.shared_hidden > 0 ? fmt::format(" + shared {}", model.moe.shared_hidden) : "";
  }
  if (num_dense > 0) {
    text += fmt::format(", {} dense of {}", num_dense, model.dense_hidden);
  }
  return text + fmt::format(", sequence {}", model.sequence_length);
}

std::vector<std::string> header_lines(const RunHeader& header) {
  std::vector<std::string> lines = {fmt::format("{} in {}", header.name, header.dir)};
  add_labelled(lines, "model", header.model);
  add_labelled(lines, "parameters",
               fmt::format("{} total, {} active per token ({} without embeddings)",
                           short_count(header.total_parameters), short_count(header.active_parameters),
                           short_count(header.active_non_embedding_parameters)));
  add_labelled(lines, "data", header.data);
  add_labelled(lines, "device", header.device);
  add_labelled(lines, "length",
               fmt::format("{} steps of {} tokens, {} in all", grouped_digits(header.total_steps),
                           grouped_digits(header.batch_tokens),
                           short_count(header.total_steps * header.batch_tokens)));
  if (!header.resumed_from.empty()) {
    add_labelled(
        lines, "resumed",
        fmt::format("from {} after step {}", header.resumed_from, grouped_digits(header.first_step)));
  }
  add_labelled(lines, "memory", header.memory_table);
  return lines;
}

std::string step_line(const StepReport& report) {
  std::string line = fmt::format(
      "[step={}/{},epoch={},eta={}] loss={:.4f} grad_norm={:.4f} lr={:.3e}", report.step, report.total_steps,
      report.epoch, duration_text(report.eta_seconds), report.ce, report.grad_norm, report.learning_rate);
  line += fmt::format(" tokens/s={:.0f}", report.tokens_per_second);
  if (!report.expert_counts.empty()) {
    line += fmt::format(" imbalance={:.2f}", report.imbalance);
  }
  if (report.skipped) {
    line += " skipped";
  }
  if (report.non_finite) {
    line += " non-finite";
  }
  return line;
}

std::string evaluation_text(const EvalReport& report) {
  std::string text =
      fmt::format("evaluation: loss {:.4f}, perplexity {:.2f}", report.ce, std::exp(report.ce));
  if (report.bits_per_byte > 0) {
    text += fmt::format(", {:.4f} bits per byte", report.bits_per_byte);
  }
  return text;
}

std::vector<std::string> comparison_lines(const EvalReport& report) {
  std::vector<std::string> lines = {
      fmt::format("{:<24}{:>16}{:>16}", "held-out text", "nats per token", "bits per byte")};
  const auto add = [&lines](std::string_view name, double nats, double bits) {
    if (nats > 0) {
      lines.push_back(
          fmt::format("{:<24}{:>16.4f}{:>16}", name, nats, bits > 0 ? fmt::format("{:.4f}", bits) : "-"));
    }
  };
  add("this model", report.ce, report.bits_per_byte);
  add("bigram (Witten-Bell)", report.bigram_ce, report.bigram_bits_per_byte);
  add("unigram", report.unigram_ce, report.unigram_bits_per_byte);
  return lines;
}

}  // namespace wych::train
