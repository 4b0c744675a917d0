#include "train/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "config/model_size.h"
#include "plan/report.h"
#include "train/html.h"
#include "train/learning_rate.h"
#include "train/printable.h"
#include "train/run_text.h"
#include "train/svg_chart.h"

namespace wych::train {
namespace {

constexpr std::size_t kMostSamples = 8;
constexpr std::size_t kMostDots = 20;  // beyond, a curve alone is clearer

constexpr std::string_view kHead = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'"/>
<meta name="color-scheme" content="light dark"/>
<style>
:root{--page:#fff;--card:#f6f7f9;--text:#1b1f24;--quiet:#5f6975;--rule:#dfe3e8;
--c0:#1f6feb;--c1:#d1570a;--c2:#1a7f4b;--c3:#8a63d2;--hot:#d1570a;--cold:#1f6feb}
@media (prefers-color-scheme:dark){:root{--page:#12151a;--card:#1b2027;--text:#e4e8ee;--quiet:#97a3b1;
--rule:#323a45;--c0:#6cb0ff;--c1:#ff9f5a;--c2:#5fd39a;--c3:#b89cff;--hot:#e0702a;--cold:#3d84e6}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:72rem;padding:1.5rem 1rem 3rem;background:var(--page);color:var(--text);
font:15px/1.5 system-ui,sans-serif}
h1{margin:0;font-size:1.7rem;overflow-wrap:anywhere}
h2{margin:2.2rem 0 .7rem;font-size:1.1rem}
p{margin:.2rem 0;color:var(--quiet);overflow-wrap:anywhere}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.7rem;margin:1.2rem 0 0;padding:0}
.tiles div,figure,.sample{background:var(--card);border-radius:10px;padding:.7rem .9rem}
.tiles dt{color:var(--quiet);font-size:.85rem}
.tiles dd{margin:0;font-size:1.35rem;font-weight:600;font-variant-numeric:tabular-nums}
.charts{display:grid;margin-bottom:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1rem}
figure{margin:0;min-width:0}
figcaption{display:flex;flex-wrap:wrap;gap:.1rem .9rem;align-items:baseline;font-size:.85rem;color:var(--quiet)}
figcaption b{color:var(--text);font-size:.95rem}
.key i{display:inline-block;width:1.1rem;height:0;border-top:2px solid var(--c);margin-right:.35rem;
vertical-align:middle}
.key i.dots{width:.5rem;height:.5rem;border:0;border-radius:50%;background:var(--c)}
.key i.dashed{border-top-style:dashed}
.key i.faint{opacity:.45}
.key i.scale{width:5rem;height:.7rem;border:0;border-radius:3px;
background:linear-gradient(90deg,var(--cold),transparent 50%,var(--hot))}
.plot{position:relative;margin:.8rem .6rem 1.6rem 3rem}
.plot svg{display:block;width:100%;height:100%;overflow:visible}
.plot span{position:absolute;font-size:12px;line-height:1;color:var(--quiet);white-space:nowrap;
font-variant-numeric:tabular-nums}
.plot .y{right:100%;margin-right:8px;transform:translateY(-50%)}
.plot .x{top:100%;margin-top:8px;transform:translateX(-50%)}
.plot .cell{transform:translate(-50%,-50%);color:var(--text)}
.c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}
path{fill:none;vector-effect:non-scaling-stroke;stroke-linejoin:round}
.grid{stroke:var(--rule);stroke-width:1}
.line{stroke:var(--c);stroke-width:2}
.faint{stroke-width:1;opacity:.45}
.dashed{stroke-width:1.5;stroke-dasharray:6 5}
.dots{stroke:var(--c);stroke-width:8;stroke-linecap:round}
rect{stroke:var(--card);stroke-width:2;vector-effect:non-scaling-stroke}
.hot{fill:var(--hot)}.cold{fill:var(--cold)}
.scroll{overflow-x:auto}
.scroll+.scroll{margin-top:1rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.3rem 1.1rem .3rem 0;border-bottom:1px solid var(--rule);text-align:left;vertical-align:top}
th{font-weight:400;color:var(--quiet)}
td.n,th.n{text-align:right}
td.n{white-space:nowrap}
.sample{margin:.6rem 0}
.text{margin:.2rem 0 0;color:var(--text);white-space:pre-wrap;font:13px/1.5 ui-monospace,monospace}
pre{margin:.6rem 0 0;padding:.9rem;background:var(--card);border-radius:10px;overflow-x:auto;
font:13px/1.5 ui-monospace,monospace}
summary{cursor:pointer}
</style>
)";

// What is finite with four decimals, else a dash.
std::string decimal_text(double value) { return std::isfinite(value) ? fmt::format("{:.4f}", value) : "-"; }

std::string safe_text(std::string_view text) { return html_escape(printable(text, LineBreaks::kKeep)); }

std::string section(std::string_view title, const std::string& body) {
  return body.empty() ? "" : fmt::format("<h2>{}</h2>\n{}", title, body);
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

std::string tile(std::string_view name, const std::string& value) {
  return fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", name, html_escape(value));
}

std::string tiles(const RunRecord& record) {
  std::string html = "<dl class=\"tiles\">\n";
  html += tile("training loss", decimal_text(last_value(smooth(record.loss))));
  const double validation =
      record.final_evaluation ? record.final_evaluation->ce : last_value(record.validation);
  if (std::isfinite(validation)) {
    html += tile("held-out loss", decimal_text(validation));
  }
  html += tile("steps", grouped_digits(record.last_step));
  html += tile("tokens", short_count(record.tokens));
  if (record.step_seconds > 0) {
    html += tile("time in steps", duration_text(record.step_seconds));
    html += tile("tokens/s",
                 grouped_digits(std::llround(static_cast<double>(record.tokens) / record.step_seconds)));
  }
  return html + "</dl>\n";
}

std::string fact(std::string_view name, const std::string& value) {
  return value.empty() ? "" : fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", name, safe_text(value));
}

std::string facts(const RunRecord& record) {
  std::string html = "<div class=\"scroll\"><table>\n";
  if (record.config) {
    const config::Config& config = *record.config;
    const config::ParameterCounts counts = config::count_parameters(config.model);
    html += fact("model", model_text(config.model));
    html += fact("parameters", fmt::format("{} total, {} active per token", short_count(counts.total),
                                           short_count(counts.active)));
    html += fact("batch", fmt::format("{} tokens, {} sequences", grouped_digits(config::batch_tokens(config)),
                                      grouped_digits(config::batch_tokens(config) /
                                                     std::max<i64>(1, config.model.sequence_length))));
    html += fact("data", config.data.dir);
    html += fact("seed", fmt::format("{}", config.run.seed));
  }
  html += fact("machine", record.host);
  html += fact("started", record.num_sessions > 1 && !record.started.empty()
                              ? fmt::format("{}, session {}", record.started, record.num_sessions)
                              : record.started);
  html += fact("skipped steps", record.skipped.empty() ? "" : grouped_digits(std::ssize(record.skipped)));
  html +=
      fact("unreadable lines", record.unreadable_lines == 0 ? "" : grouped_digits(record.unreadable_lines));
  return html + "</table></div>\n";
}

// A level over the whole run, to compare a curve with.
Series level(std::string label, int color, double value, const std::vector<Point>& over) {
  Series series{std::move(label), color, Mark::kDashedLine, {}};
  if (value > 0 && !over.empty()) {
    series.points = {{over.front().step, value}, {over.back().step, value}};
  }
  return series;
}

std::string charts(const RunRecord& record) {
  const EvalReport final = record.final_evaluation.value_or(EvalReport());
  LineChart loss{.title = "Loss, nats per token", .series = {}};
  loss.series.push_back({"each step", 0, Mark::kFaintLine, record.loss});
  loss.series.push_back({"training, smoothed", 0, Mark::kLine, smooth(record.loss)});
  loss.series.push_back({"held-out", 1, Mark::kLine, record.validation});
  if (record.validation.size() <= kMostDots) {
    loss.series.push_back({"", 1, Mark::kDots, record.validation});
  }
  loss.series.push_back(level("bigram", 2, final.bigram_ce, record.loss));
  loss.series.push_back(level("unigram", 3, final.unigram_ce, record.loss));
  LineChart norm{.title = "Gradient norm", .log_scale = true, .series = {}};
  norm.series.push_back({"each step", 0, Mark::kFaintLine, record.grad_norm});
  norm.series.push_back({"smoothed", 0, Mark::kLine, smooth(record.grad_norm)});
  norm.series.push_back({"skipped", 1, Mark::kDots, record.skipped});
  LineChart imbalance{.title = "Load imbalance, largest / mean", .series = {}};
  imbalance.series.push_back({"", 1, Mark::kFaintLine, record.imbalance});
  imbalance.series.push_back({"", 0, Mark::kFaintLine, record.mean_imbalance});
  imbalance.series.push_back({"worst layer", 1, Mark::kLine, smooth(record.imbalance)});
  imbalance.series.push_back({"mean of layers", 0, Mark::kLine, smooth(record.mean_imbalance)});
  const LineChart rate{.title = "Learning rate", .series = {{"", 0, Mark::kLine, record.learning_rate}}};
  std::vector<HeatMapRow> rows;
  for (const LayerLoad& load : record.loads) {
    rows.push_back({fmt::format("layer {}", load.block), load.relative});
  }
  const std::string map = heat_map(
      fmt::format("Expert load, last {} step{}", record.load_steps, record.load_steps == 1 ? "" : "s"),
      "expert", rows);
  const std::string lines = line_chart(loss) + line_chart(rate) + line_chart(norm) + line_chart(imbalance);
  return (lines.empty() ? "" : "<div class=\"charts\">\n" + lines + "</div>\n") + map;
}

std::string comparison(const RunRecord& record) {
  if (!record.final_evaluation) {
    return "";
  }
  const EvalReport& report = *record.final_evaluation;
  std::string html =
      "<div class=\"scroll\"><table>\n<tr><th>held-out text</th><th class=\"n\">nats per token</th>"
      "<th class=\"n\">perplexity</th><th class=\"n\">bits per byte</th></tr>\n";
  const auto add = [&html](std::string_view name, double nats, double bits) {
    html += fmt::format(
        "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n", name,
        decimal_text(nats), std::isfinite(nats) ? fmt::format("{:.2f}", std::exp(nats)) : "-",
        bits > 0 ? decimal_text(bits) : "-");
  };
  add("this model", report.ce, report.bits_per_byte);
  add("bigram (Witten-Bell)", report.bigram_ce, report.bigram_bits_per_byte);
  add("unigram", report.unigram_ce, report.unigram_bits_per_byte);
  return html + "</table></div>\n";
}

// At most kMostSamples, evenly over the run, the last one included.
std::string samples(const RunRecord& record) {
  const std::size_t shown = std::min(record.samples.size(), kMostSamples);
  std::string html;
  for (std::size_t i = 1; i <= shown; ++i) {
    const Sample& sample = record.samples[record.samples.size() * i / shown - 1];
    html += fmt::format("<div class=\"sample\"><p>step {}</p><p class=\"text\"><b>{}</b>{}</p></div>\n",
                        grouped_digits(sample.step), safe_text(sample.prompt), safe_text(sample.text));
  }
  return html;
}

std::string memory_table(const std::vector<MemoryRow>& rows, std::string_view what, bool bounds) {
  if (rows.empty()) {
    return "";
  }
  std::string html =
      fmt::format("<div class=\"scroll\"><table>\n<tr><th>{}</th><th class=\"n\">bytes</th>{}</tr>\n", what,
                  bounds ? "<th class=\"n\">lower bound</th>" : "");
  for (const MemoryRow& row : rows) {
    if (row.bytes > 0) {
      html += fmt::format("<tr><td>{}</td><td class=\"n\">{}</td>", safe_text(row.name),
                          plan::bytes_text(row.bytes));
      html += bounds ? fmt::format("<td class=\"n\">{}</td></tr>\n", plan::bytes_text(row.lower_bound))
                     : "</tr>\n";
    }
  }
  return html + "</table></div>\n";
}

std::string configuration(const RunRecord& record) {
  return record.config_text.empty()
             ? ""
             : fmt::format("<details><summary>every key</summary><pre>{}</pre></details>\n",
                           safe_text(record.config_text));
}

std::string status(const RunRecord& record) {
  if (record.finished) {
    return "finished";
  }
  return record.config ? fmt::format("at step {} of {}", grouped_digits(record.last_step),
                                     grouped_digits(planned_steps(*record.config)))
                       : fmt::format("at step {}", grouped_digits(record.last_step));
}

}  // namespace

std::string report_html(const RunRecord& record, const std::string& run_dir) {
  const std::string name =
      record.config && !record.config->run.name.empty() ? record.config->run.name : run_dir;
  std::string html(kHead);
  html += fmt::format("<title>{0}: wych</title>\n</head>\n<body>\n<h1>{0}</h1>\n<p>{1}, {2}</p>\n",
                      safe_text(name), safe_text(run_dir), status(record));
  html += tiles(record);
  html += section("Run", facts(record));
  html += section("Curves", charts(record));
  html += section("Against counting alone", comparison(record));
  html += section("Samples", samples(record));
  html += section("Memory", memory_table(record.memory, "category", false) +
                                memory_table(record.scratch, "scratch of program", true));
  html += section("Configuration", configuration(record));
  return html + "</body>\n</html>\n";
}

Expected<void> write_report(const std::string& run_dir) {
  WYCH_TRY(const RunRecord record, read_run_record(run_dir));
  return write_file_atomic(run_dir + "/report.html", report_html(record, run_dir), ErrorKind::kData);
}

}  // namespace wych::train
