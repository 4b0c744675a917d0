// The report from synthetic run folders: well-formed whatever the run holds, nothing from outside, hostile
// text harmless, gaps and torn lines survived.
#include "train/report.h"

#include <gtest/gtest.h>

#include <cmath>

#include "config/load.h"
#include "config/schema.h"
#include "io/metrics.h"
#include "io/scratch_folder.h"
#include "train/svg_chart.h"

namespace wych::train {
namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

int count(std::string_view text, std::string_view part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

// What is wrong with the markup, or "". Strict: every tag closed in order or by itself, attributes in double
// quotes, no bare ampersand.
std::string markup_fault(std::string_view html) {
  std::vector<std::string> open;
  for (std::size_t at = 0; at < html.size(); ++at) {
    if (html[at] == '&') {
      const std::string_view entity = html.substr(at, html.find(';', at) - at);
      if (entity != "&amp" && entity != "&lt" && entity != "&gt" && entity != "&quot" && entity != "&#39") {
        return "bare ampersand before " + std::string(html.substr(at, 20));
      }
    }
    if (html[at] != '<' || html.substr(at).starts_with("<!DOCTYPE html>")) {
      continue;
    }
    std::size_t end = at;
    for (bool quoted = false; end < html.size() && (quoted || html[end] != '>'); ++end) {
      quoted = quoted != (html[end] == '"');
    }
    const std::string_view tag = html.substr(at + 1, end - at - 1);
    const std::string name(tag.substr(0, tag.find_first_of(" /\n", 1)));
    if (name.empty() || end == html.size()) {
      return "a tag without end: " + std::string(tag.substr(0, 20));
    }
    if (name[0] == '/') {
      if (open.empty() || "/" + open.back() != name) {
        return "<" + name + "> closes " + (open.empty() ? "nothing" : open.back());
      }
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
    at = end;
  }
  return open.empty() ? "" : "<" + open.back() + "> is not closed";
}

// A run of 60 steps in two layers of four experts: expert 3 of layer 1 is dead, step 30 was skipped, step 31
// was not finite, and the last line of each file is torn.
class Report : public testing::Test {
 protected:
  void SetUp() override {
    const std::vector<std::string> overrides = {"--run.name=<b>a & b</b>", "--run.max_steps=80",
                                                "--data.dir=somewhere"};
    const config::Loaded loaded = config::load("preset:laptop", overrides).value();
    io::write_bytes(run_ / "config.toml", config::to_toml(loaded.config));
    io::write_bytes(run_ / "plan.json",
                    R"({"bytes":{"weights":1048576,"scratch":2048},"total_bytes":1050624,)"
                    R"("programs":{"train":{"scratch_bytes":2048,"scratch_lower_bound":1024}}})");
    io::write_bytes(run_ / "env.json", R"({"processor":"A <fast> one","cores":2,"started":"2026-01-02"})");
    write_metrics();
    write_events();
  }

  void write_metrics() {
    io::MetricsWriter metrics = io::MetricsWriter::open(run_.path(), 0).value();
    for (i64 step = 1; step <= 60; ++step) {
      const double loss = step == 31 ? std::nan("") : 7.0 - 0.05 * static_cast<double>(step);
      io::JsonObject line;
      line.add("train/CE loss", loss).add("optim/total grad norm", step == 30 ? 55.0 : 1.0);
      line.add("optim/LR (group 0)", 1e-3).add("optim/step skipped", step == 30 ? 1 : 0);
      line.add("throughput/device/TPS", 50.0).add("throughput/total tokens", step * 100);
      for (const int block : {0, 1}) {
        line.add(fmt::format("train/block {}/load imbalance", block), 1.5 + block);
        line.add_raw(fmt::format("moe/block {}/assigned tokens", block),
                     block == 0 ? "[25,25,25,25]" : "[50,25,25,0]");
      }
      metrics.write(step, line).value();
      if (step % 20 == 0) {
        metrics.write(step, io::JsonObject().add("eval/lm/valid/CE loss", 4.25)).value();
      }
    }
    append("metrics.jsonl", "{\"step\":61,\"train/CE lo");
  }

  void write_events() {
    io::EventsWriter events = io::EventsWriter::open(run_.path()).value();
    events.write(0, "start").value();
    for (i64 step = 1; step <= 30; ++step) {
      sample(events, step, fmt::format("text {}", step));
    }
    sample(events, 60, "<script>alert('x')</script> \x1b[31m \xe2\x80\xae");
    events
        .write(60, "final_evaluation",
               io::JsonObject()
                   .add("ce", 4.2)
                   .add("bits_per_byte", 2.1)
                   .add("bigram_ce", 5.5)
                   .add("unigram_ce", std::nan("")))
        .value();
    events.write(60, "end").value();
    append("events.jsonl", "{\"time\":");
  }

  static void sample(io::EventsWriter& events, i64 step, const std::string& text) {
    events.write(step, "sample", io::JsonObject().add("prompt", "Once & ").add("text", text)).value();
  }

  void append(const std::string& name, const std::string& text) const {
    io::write_bytes(run_ / name, io::read_bytes(run_ / name) + text);
  }

  [[nodiscard]] std::string report() const {
    const Expected<void> written = write_report(run_.path());
    EXPECT_TRUE(written.has_value()) << written.error().text();
    return io::read_bytes(run_ / "report.html");
  }

  const io::ScratchFolder run_;
};

TEST_F(Report, ReadsTheRunBack) {
  const RunRecord record = read_run_record(run_.path()).value();
  EXPECT_EQ(record.loss.size(), 60U);
  EXPECT_TRUE(std::isnan(record.loss[30].value));
  EXPECT_EQ(record.validation.size(), 3U);
  ASSERT_EQ(record.skipped.size(), 1U);
  EXPECT_EQ(record.skipped[0].step, 30);
  EXPECT_EQ(record.skipped[0].value, 55);
  EXPECT_EQ(record.tokens, 6000);
  EXPECT_DOUBLE_EQ(record.step_seconds, 120);
  EXPECT_EQ(record.imbalance.back().value, 2.5);
  EXPECT_EQ(record.mean_imbalance.back().value, 2);
  EXPECT_EQ(record.load_steps, 20);
  ASSERT_EQ(record.loads.size(), 2U);
  EXPECT_EQ(record.loads[1].relative, (std::vector<double>{2, 1, 1, 0}));
  EXPECT_EQ(record.unreadable_lines, 2);
  EXPECT_TRUE(record.finished);
  EXPECT_EQ(record.samples.size(), 31U);
}

TEST_F(Report, IsWellFormedAndSelfContained) {
  const std::string html = report();
  EXPECT_EQ(markup_fault(html), "");
  EXPECT_TRUE(contains(html, "</html>"));
  for (const std::string_view outside :
       {"http:", "https:", "//", "<script", "<link", "<img", "url(", "@import"}) {
    EXPECT_FALSE(contains(html, outside)) << outside;
  }
  EXPECT_TRUE(contains(html, "prefers-color-scheme"));
  EXPECT_TRUE(contains(html, "width=device-width"));
}

TEST_F(Report, ShowsWhatTheRunDid) {
  const std::string html = report();
  EXPECT_EQ(count(html, "<figure>"), 5);
  EXPECT_EQ(count(html, "<rect"), 8);
  EXPECT_TRUE(contains(html, "layer 1, expert 3: 0.00"));
  EXPECT_TRUE(contains(html, "layer 1, expert 0: 2.00"));
  EXPECT_TRUE(contains(html, "finished"));
  EXPECT_TRUE(contains(html, "0:02:00"));
  EXPECT_TRUE(contains(html, "8 experts top-2"));
  EXPECT_TRUE(contains(html, "<td>bigram (Witten-Bell)</td><td class=\"n\">5.5000</td>"));
  EXPECT_TRUE(contains(html, "<td>unigram</td><td class=\"n\">-</td>"));
  EXPECT_TRUE(contains(html, "1.00 MiB"));
  EXPECT_TRUE(contains(html, "[model.moe]"));
  EXPECT_EQ(count(html, "class=\"sample\""), 8);
  EXPECT_TRUE(contains(html, "<th>unreadable lines</th><td>2</td>"));
}

TEST_F(Report, EscapesEveryText) {
  const std::string html = report();
  EXPECT_TRUE(contains(html, "<h1>&lt;b&gt;a &amp; b&lt;/b&gt;</h1>"));
  EXPECT_TRUE(contains(html, "A &lt;fast&gt; one, 2 cores"));
  EXPECT_TRUE(contains(html, "<b>Once &amp; </b>&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;"));
  EXPECT_FALSE(contains(html, "\x1b"));
  EXPECT_FALSE(contains(html, "\xe2\x80\xae"));  // would reverse the text after it
}

TEST_F(Report, NoValueThatIsNotFiniteReachesTheDrawing) {
  append("metrics.jsonl", "\n{\"step\":62,\"train/CE loss\":1e308,\"optim/total grad norm\":-3}\n");
  const std::string html = report();
  EXPECT_EQ(markup_fault(html), "");
  EXPECT_FALSE(contains(html, "nan"));
  EXPECT_FALSE(contains(html, "inf"));
}

TEST_F(Report, ForgetsWhatAResumptionTakesBack) {
  io::EventsWriter events = io::EventsWriter::open(run_.path()).value();
  events.write(10, "resume").value();
  const RunRecord record = read_run_record(run_.path()).value();
  EXPECT_FALSE(record.finished);
  EXPECT_FALSE(record.final_evaluation.has_value());
  EXPECT_EQ(record.samples.back().step, 10);
  EXPECT_EQ(record.num_sessions, 2);
  EXPECT_TRUE(contains(report(), "at step 60 of "));
}

TEST(ReportOfLittle, MetricsAloneSuffice) {
  const io::ScratchFolder run;
  io::write_bytes(run / "metrics.jsonl", "{\"step\":1,\"train/CE loss\":7.5}\n");
  write_report(run.path()).value();
  const std::string html = io::read_bytes(run / "report.html");
  EXPECT_EQ(markup_fault(html), "");
  EXPECT_TRUE(contains(html, "7.5000"));
}

TEST(ReportOfLittle, ARunWithoutAStepHasAPage) {
  const io::ScratchFolder run;
  io::write_bytes(run / "metrics.jsonl", "");
  write_report(run.path()).value();
  EXPECT_EQ(markup_fault(io::read_bytes(run / "report.html")), "");
}

TEST(ReportOfLittle, NoMetricsIsAnErrorThatNamesTheFile) {
  const io::ScratchFolder run;
  const Expected<void> written = write_report(run.path());
  ASSERT_FALSE(written.has_value());
  EXPECT_TRUE(contains(written.error().text(), run / "metrics.jsonl"));
}

LineChart one_series(std::vector<Point> points, bool log_scale = false) {
  return {.title = "t", .log_scale = log_scale, .series = {{"s", 0, Mark::kLine, std::move(points)}}};
}

TEST(LineChart, PlacesExtremesAtTheEdgesAndBreaksAtGaps) {
  const std::string html = line_chart(one_series({{0, 0}, {1, 10}, {2, std::nan("")}, {3, 5}, {4, 10}}));
  // The axis goes from 0 to 10.4.
  EXPECT_TRUE(contains(html, "d=\"M0.0 1000.0h0L250.0 38.5M750.0 519.2h0L1000.0 38.5\"")) << html;
  EXPECT_EQ(markup_fault(html), "");
}

TEST(LineChart, LogScaleLeavesOutWhatIsNotPositive) {
  const std::string html = line_chart(one_series({{1, 0}, {2, 1}, {3, 100}}, true));
  EXPECT_EQ(count(html, "M0.0 "), 0);
  EXPECT_TRUE(contains(html, ">10</span>"));
  EXPECT_EQ(line_chart(one_series({{1, 0}, {2, -1}}, true)), "");
}

TEST(LineChart, KeepsSpikesOfLongSeries) {
  std::vector<Point> points;
  for (int step = 0; step < 100000; ++step) {
    points.push_back({static_cast<double>(step), step == 54321 ? 9.0 : 1.0});
  }
  const std::string html = line_chart(one_series(points));
  EXPECT_LT(html.size(), 40000U);
  // The spike's place: 9 on an axis from 0.68 to 9.32.
  EXPECT_TRUE(contains(html, "543.2 37.0"));
}

TEST(LineChart, LevelsAndSinglePointsHaveAnAxis) {
  for (const double value : {0.0, 5.0, -5.0, 1e20, 1e-20}) {
    const std::string html = line_chart(one_series({{7, value}, {8, value}}));
    EXPECT_GE(count(html, "class=\"y\""), 2) << value;
    EXPECT_FALSE(contains(html, "nan")) << value;
  }
  EXPECT_GE(count(line_chart(one_series({{7, 1}})), "class=\"x\""), 1);
  EXPECT_EQ(line_chart(one_series({{7, std::nan("")}})), "");
  EXPECT_EQ(line_chart({}), "");
}

TEST(Smoothed, IsCentredAndKeepsGaps) {
  const std::vector<Point> out = smoothed({{1, 4}, {2, 6}, {3, std::nan("")}, {4, 8}, {5, 1}}, 1);
  EXPECT_EQ(out[0].value, 5);
  EXPECT_EQ(out[1].value, 5);
  EXPECT_TRUE(std::isnan(out[2].value));
  EXPECT_EQ(out[3].value, 4.5);
  EXPECT_EQ(out[4].step, 5);
  EXPECT_TRUE(smoothed({}, 3).empty());
}

}  // namespace
}  // namespace wych::train
