// Assembly of the page (report.h): what is shown in which order and in which words.
#include "train/report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "config/model_size.h"
#include "plan/report.h"
#include "train/html.h"
#include "train/learning_rate.h"
#include "train/printable.h"
#include "train/report_experts.h"
#include "train/report_style.h"
#include "train/run_text.h"
#include "train/svg_chart.h"

namespace wych::train {
namespace {

constexpr std::size_t kMostSamples = 6;
constexpr std::size_t kMostEvents = 200;
constexpr std::size_t kMostDots = 40;  // beyond, a curve alone is clearer

// What is finite with so many decimals, else a dash.
std::string decimal_text(double value, int decimals = 4) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, decimals) : "-";
}

std::string safe_text(std::string_view text) { return html_escape(printable(text, LineBreaks::kKeep)); }

std::string section(std::string_view title, const std::string& body) {
  return body.empty() ? "" : fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", title, body);
}

std::string part(std::string_view title, const std::string& body) {
  return body.empty() ? "" : fmt::format("<h3>{}</h3>\n{}", title, body);
}

// The last value of a series that is a number, or NaN.
double last_value(const std::vector<Point>& points) {
  const auto found =
      std::find_if(points.rbegin(), points.rend(), [](const Point& p) { return std::isfinite(p.value); });
  return found == points.rend() ? std::nan("") : found->value;
}

// A curve over a fiftieth of the run: smooth enough to read.
std::vector<Point> smooth(const std::vector<Point>& points) {
  return smoothed(points, std::max<std::size_t>(3, points.size() / 100));
}

i64 planned_steps(const config::Config& config) {
  const i64 total = LearningRateSchedule::from(config).total;
  return config.run.hard_stop > 0 ? std::min(config.run.hard_stop, total) : total;
}

// Whether the last step's loss or norm was not finite.
bool ends_non_finite(const RunRecord& record) {
  return !record.non_finite.empty() && record.non_finite.back().step >= static_cast<double>(record.last_step);
}

std::string status(const RunRecord& record) {
  const bool at_end = record.config && record.last_step >= planned_steps(*record.config);
  if (record.finished || (at_end && record.final_evaluation)) {
    return "finished";
  }
  if (ends_non_finite(record)) {
    return fmt::format("stopped: not finite at step {}", grouped_digits(record.last_step));
  }
  return record.config ? fmt::format("at step {} of {}", grouped_digits(record.last_step),
                                     grouped_digits(planned_steps(*record.config)))
                       : fmt::format("at step {}", grouped_digits(record.last_step));
}

// "A mixture of 8 experts (2 a token) in 4 layers: 2.4 M parameters, 1.1 M of them active. ..."
std::string lead(const RunRecord& record) {
  std::string text;
  if (record.config) {
    const config::ModelConfig& model = record.config->model;
    const config::ParameterCounts counts = config::count_parameters(model);
    i64 num_moe = 0;
    for (i64 layer = 0; layer < model.n_layers; ++layer) {
      num_moe += model.is_dense_layer(layer) ? 0 : 1;
    }
    text += num_moe == 0
                ? fmt::format("A dense model of {} layers with <b>{}</b> parameters", model.n_layers,
                              short_count(counts.total))
                : fmt::format(
                      "{} layers with <b>{} experts</b> each, {} of them a token: <b>{}</b> parameters, "
                      "<b>{}</b> active",
                      model.n_layers, model.moe.experts, model.moe.top_k, short_count(counts.total),
                      short_count(counts.active));
    text += fmt::format(". Trained on {} tokens", short_count(record.tokens));
    text += record.config->data.dir.empty() ? "" : " of " + safe_text(record.config->data.dir);
    text += record.device.empty() ? "." : fmt::format(" on {}.", html_escape(record.device));
  }
  return text.empty() ? "" : fmt::format("<p class=\"lead\">{}</p>\n", text);
}

std::string tile(std::string_view name, const std::string& value, const std::string& note) {
  return fmt::format("<div><dt>{}</dt><dd>{}<small>{}</small></dd></div>\n", name, html_escape(value),
                     html_escape(note));
}

std::string tiles(const RunRecord& record) {
  std::string html = "<dl class=\"tiles\">\n";
  const EvalReport final = record.final_evaluation.value_or(EvalReport());
  if (final.bits_per_byte > 0) {
    html += tile("bits per byte, held-out", decimal_text(final.bits_per_byte, 3),
                 fmt::format("bigram {}\nunigram {}", decimal_text(final.bigram_bits_per_byte, 3),
                             decimal_text(final.unigram_bits_per_byte, 3)));
  }
  const double validation = record.final_evaluation ? final.ce : last_value(record.validation);
  if (std::isfinite(validation)) {
    html += tile("held-out loss", decimal_text(validation),
                 fmt::format("nats per token\nperplexity {:.1f}", std::exp(validation)));
  }
  const std::string last_loss = decimal_text(last_value(smooth(record.loss)));
  html += !ends_non_finite(record)
              ? tile("training loss", last_loss, "nats per token\nmean of the last steps")
              : tile("training loss", "not finite",
                     fmt::format("the last finite steps: {}\nnats per token", last_loss));
  if (record.step_seconds > 0) {
    const double seconds = std::max(record.seconds, record.step_seconds);
    const double rate = static_cast<double>(record.tokens) / record.step_seconds;
    html += tile("tokens per second", grouped_digits(std::llround(rate)), "over all steps");
    html += tile("time", duration_text(seconds), duration_text(record.step_seconds) + " of it in steps");
  }
  html += tile("steps", grouped_digits(record.last_step), short_count(record.tokens) + " tokens");
  return html + "</dl>\n";
}

std::string fact(std::string_view name, const std::string& value) {
  return value.empty() ? "" : fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", name, safe_text(value));
}

std::string facts(const RunRecord& record, const std::string& run_dir) {
  std::string html = "<div class=\"scroll\"><table class=\"facts\">\n";
  html += fact("folder", run_dir);
  if (record.config) {
    const config::Config& config = *record.config;
    html += fact("model", model_text(config.model));
    html += fact("batch", fmt::format("{} tokens, {} sequences", grouped_digits(config::batch_tokens(config)),
                                      grouped_digits(config::batch_tokens(config) /
                                                     std::max<i64>(1, config.model.sequence_length))));
    html += fact("data", config.data.dir);
    html += fact("seed", fmt::format("{}", config.run.seed));
  }
  html += fact("device", record.device);
  html += fact("machine", record.host);
  html += fact("build", record.build);
  html += fact("started", record.num_sessions > 1 && !record.started.empty()
                              ? fmt::format("{}, session {}", record.started, record.num_sessions)
                              : record.started);
  html += fact("skipped steps", record.skipped.empty() ? "" : grouped_digits(std::ssize(record.skipped)));
  html += fact("not finite", record.non_finite.empty()
                                 ? ""
                                 : grouped_digits(std::ssize(record.non_finite)) + " steps, not applied");
  html +=
      fact("unreadable lines", record.unreadable_lines == 0 ? "" : grouped_digits(record.unreadable_lines));
  return html + "</table></div>\n";
}

Series level(std::string label, int color, double value) {
  Series series{std::move(label), color, Mark::kLevel, {}};
  if (value > 0) {
    series.points = {{0, value, 0}};
  }
  return series;
}

LineChart loss_chart(const RunRecord& record) {
  const EvalReport final = record.final_evaluation.value_or(EvalReport());
  LineChart loss;
  loss.title = "Loss";
  loss.unit = "nats per token";
  loss.series.push_back(level("unigram", 3, final.unigram_ce));
  loss.series.push_back(level("bigram", 2, final.bigram_ce));
  loss.series.push_back({"each step", 0, Mark::kFaintLine, record.loss});
  loss.series.push_back({"training, smoothed", 0, Mark::kLine, smooth(record.loss)});
  if (record.validation.size() <= kMostDots) {
    loss.series.push_back({"", 1, Mark::kLine, record.validation});
    loss.series.push_back({"held-out", 1, Mark::kDots, record.validation});
  } else {
    loss.series.push_back({"held-out", 1, Mark::kLine, record.validation});
  }
  loss.series.push_back({"not finite", 4, Mark::kTicks, record.non_finite});
  return loss;
}

// The loss over tokens, and over their logarithm: power laws are straight there.
std::string loss_charts(const RunRecord& record) {
  LineChart loss = loss_chart(record);
  loss.id = "loss";
  const std::string linear = line_chart(loss);
  if (linear.empty()) {
    return "";
  }
  loss.id = "loss-log";
  loss.log_x = true;
  return "<div class=\"tall\">\n<input class=\"switch\" type=\"radio\" name=\"across\" id=\"lin\" "
         "checked=\"checked\"/><input class=\"switch\" type=\"radio\" name=\"across\" id=\"log\"/>\n"
         "<div class=\"tabs\"><label for=\"lin\">linear</label><label for=\"log\">logarithmic</label></div>\n"
         "<div class=\"lin\">" +
         linear + "</div>\n<div class=\"log\">" + line_chart(loss) + "</div>\n</div>\n";
}

std::string learning(const RunRecord& record) {
  LineChart rate{.id = "rate", .title = "Learning rate", .unit = "", .series = {}};
  rate.series.push_back({"learning rate", 0, Mark::kLine, record.learning_rate});
  LineChart norm{
      .id = "norm", .title = "Gradient norm", .unit = "before clipping", .log_values = true, .series = {}};
  norm.series.push_back({"", 0, Mark::kFaintLine, record.grad_norm});
  norm.series.push_back({"smoothed", 0, Mark::kLine, smooth(record.grad_norm)});
  norm.series.push_back({"skipped", 1, Mark::kDots, record.skipped});
  norm.series.push_back({"not finite", 4, Mark::kTicks, record.non_finite});
  LineChart speed{.id = "speed", .title = "Speed", .unit = "tokens per second", .series = {}};
  speed.series.push_back({"", 0, Mark::kFaintLine, record.tokens_per_second});
  speed.series.push_back({"smoothed", 0, Mark::kLine, smooth(record.tokens_per_second)});
  const std::string small = line_chart(rate) + line_chart(norm) + line_chart(speed);
  const std::string loss = loss_charts(record);
  return loss + (small.empty() ? "" : "<div class=\"grid3\">\n" + small + "</div>\n");
}

constexpr std::string_view kTrackKey =
    R"(<span class="key"><i class="c0 dots"></i>model</span> <span class="key"><i class="c2 ring"></i>bigram</span> )"
    R"(<span class="key"><i class="c3 ring"></i>unigram</span>)";

// Where the three models lie between 0 and `most`.
std::string track(double model, double bigram, double unigram, double most) {
  const auto at = [most](double value) { return 100 * std::clamp(value / most, 0.0, 1.0); };
  std::string html = "<div>";
  if (model > 0 && bigram > 0) {
    html += fmt::format(R"(<u style="left:{:.1f}%;width:{:.1f}%"></u>)", at(std::min(model, bigram)),
                        std::abs(at(bigram) - at(model)));
  }
  for (const auto& [value, look] : {std::pair{unigram, "c3"}, {bigram, "c2"}, {model, "c0"}}) {
    html += value > 0 ? fmt::format(R"(<i class="{}" style="left:{:.1f}%"></i>)", look, at(value)) : "";
  }
  return html + "</div>";
}

std::string held_out(const RunRecord& record) {
  if (!record.final_evaluation) {
    return "";
  }
  const bool bits = record.final_evaluation->bits_per_byte > 0;
  double most = 0;
  std::vector<DomainScore> rows = record.domains.size() > 1 ? record.domains : std::vector<DomainScore>();
  DomainScore& all = rows.emplace_back();
  static_cast<Scores&>(all) = *record.final_evaluation;
  all.name = "all of it";
  const auto of = [bits](double by_byte, double by_token) { return bits ? by_byte : by_token; };
  for (const DomainScore& row : rows) {
    most = std::max({most, of(row.bits_per_byte, row.ce), of(row.unigram_bits_per_byte, row.unigram_ce)});
  }
  std::string html = fmt::format(
      "<p>{}. A unigram knows how often each token occurs, a bigram (Witten-Bell) the token before: what a "
      "model "
      "has learned from context is the way from there.</p>\n"
      "<div class=\"scroll\"><table>\n<tr><th>text</th><th class=\"n\">this model</th><th "
      "class=\"n\">bigram</th>"
      "<th class=\"n\">unigram</th><th class=\"track\">{}</th><th class=\"n\">loss, nats</th>"
      "<th class=\"n\">perplexity</th></tr>\n",
      bits ? "Bits per byte of text, lower is better" : "Nats per token, lower is better", kTrackKey);
  for (const DomainScore& row : rows) {
    const double model = of(row.bits_per_byte, row.ce);
    const double bigram = of(row.bigram_bits_per_byte, row.bigram_ce);
    const double unigram = of(row.unigram_bits_per_byte, row.unigram_ce);
    html += fmt::format(
        "<tr{}><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>"
        "<td class=\"track\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
        &row == &all ? " class=\"all\"" : "", safe_text(row.name), decimal_text(model, 3),
        bigram > 0 ? decimal_text(bigram, 3) : "-", unigram > 0 ? decimal_text(unigram, 3) : "-",
        track(model, bigram, unigram, std::max(most, 1e-9)), decimal_text(row.ce),
        std::isfinite(row.ce) ? fmt::format("{:.2f}", std::exp(row.ce)) : "-");
  }
  return html + "</table></div>\n";
}

std::string experts(const RunRecord& record) {
  LineChart imbalance{
      .id = "imbalance", .title = "Load imbalance", .unit = "busiest expert / mean", .series = {}};
  if (!record.imbalance.empty()) {
    imbalance.series.push_back(level("balanced", 3, 1));
  }
  imbalance.series.push_back({"", 1, Mark::kFaintLine, record.imbalance});
  imbalance.series.push_back({"", 0, Mark::kFaintLine, record.mean_imbalance});
  imbalance.series.push_back({"worst layer", 1, Mark::kLine, smooth(record.imbalance)});
  imbalance.series.push_back({"mean of layers", 0, Mark::kLine, smooth(record.mean_imbalance)});
  const std::string chart = line_chart(imbalance);
  return part("Load over the run", load_maps(record)) +
         (chart.empty() ? "" : "<div class=\"gap\">" + chart + "</div>\n");
}

// At most kMostSamples, evenly over the run, the last one included.
std::string samples(const RunRecord& record) {
  const std::size_t shown = std::min(record.samples.size(), kMostSamples);
  std::string html = shown == 0 ? "" : "<div class=\"grid2\">\n";
  for (std::size_t i = 1; i <= shown; ++i) {
    const Sample& sample = record.samples[record.samples.size() * i / shown - 1];
    html += fmt::format("<div class=\"sample\"><p>step {}</p><pre><b>{}</b>{}</pre></div>\n",
                        grouped_digits(sample.step), safe_text(sample.prompt), safe_text(sample.text));
  }
  return html + (shown == 0 ? "" : "</div>\n");
}

std::string memory_table(const std::vector<MemoryRow>& rows, std::string_view what, bool bounds) {
  if (rows.empty()) {
    return "";
  }
  std::string html = fmt::format(
      "<div class=\"scroll\"><table class=\"fit\">\n<tr><th>{}</th><th class=\"n\">bytes</th>{}</tr>\n", what,
      bounds ? "<th class=\"n\">lower bound</th>" : "");
  for (const MemoryRow& row : rows) {
    if (row.bytes > 0) {
      html +=
          fmt::format("<tr{}><td>{}</td><td class=\"n\">{}</td>", row.name == "total" ? " class=\"all\"" : "",
                      safe_text(row.name), plan::bytes_text(row.bytes));
      html += bounds ? fmt::format("<td class=\"n\">{}</td></tr>\n", plan::bytes_text(row.lower_bound))
                     : "</tr>\n";
    }
  }
  return html + "</table></div>\n";
}

std::string event_row(const RunEvent& event) {
  const bool has_time = event.time > 0 && event.time < 1e11;
  return fmt::format(
      "<tr><td>{}</td><td class=\"n\">{}</td><td>{}</td><td>{}</td></tr>\n",
      has_time ? fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::gmtime(static_cast<std::time_t>(event.time))) : "-",
      grouped_digits(event.step), safe_text(event.kind), safe_text(event.detail));
}

std::string events(const RunRecord& record) {
  const std::size_t left_out = record.events.size() - std::min(record.events.size(), kMostEvents);
  if (record.events.empty()) {
    return "";
  }
  std::string html = fmt::format(
      "<details><summary>{} events</summary>\n<div class=\"scroll\"><table>\n<tr><th>time, UTC</th>"
      "<th class=\"n\">step</th><th>event</th><th></th></tr>\n",
      record.events.size());
  for (std::size_t i = 0; i < record.events.size(); ++i) {
    // The beginning and the end say most.
    if (i < kMostEvents / 2 || i >= kMostEvents / 2 + left_out) {
      html += event_row(record.events[i]);
    } else if (i == kMostEvents / 2) {
      html += fmt::format("<tr><td></td><td></td><td>{} more</td><td></td></tr>\n", left_out);
    }
  }
  return html + "</table></div></details>\n";
}

std::string configuration(const RunRecord& record) {
  return record.config_text.empty()
             ? ""
             : fmt::format(
                   "<details><summary>every key of the configuration</summary><pre>{}</pre></details>\n",
                   safe_text(record.config_text));
}

}  // namespace

std::string report_html(const RunRecord& record, const std::string& run_dir) {
  const std::string name =
      record.config && !record.config->run.name.empty() ? record.config->run.name : run_dir;
  std::string html(report_head());
  html += expert_rules(record.routing);
  html += fmt::format(
      "</style>\n<title>{0}: wych</title>\n</head>\n<body>\n<header>\n<span "
      "class=\"status\">{1}</span>\n<h1>{0}</h1>\n",
      safe_text(name), status(record));
  html += lead(record) + tiles(record) + "</header>\n<main>\n";
  html += section("Learning", learning(record));
  html += section("Held-out text", held_out(record));
  html +=
      section("Experts", experts(record) + part("Do experts take domains?", domain_matrices(record.routing)));
  html += section("Tokens and their experts", token_routes(record.routing));
  html += section("Samples during the run", samples(record));
  const std::string memory = memory_table(record.memory, "category", false) +
                             memory_table(record.scratch, "scratch of program", true);
  html += section("The run",
                  facts(record, run_dir) + part("Memory", memory) + events(record) + configuration(record));
  return html + fmt::format("</main>\n<footer>{}</footer>\n</body>\n</html>\n", html_escape(record.build));
}

Expected<void> write_report(const std::string& run_dir) {
  WYCH_TRY(const RunRecord record, read_run_record(run_dir));
  return write_file_atomic(run_dir + "/report.html", report_html(record, run_dir), ErrorKind::kData);
}

}  // namespace wych::train
