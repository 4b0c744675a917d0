// The report from synthetic run folders: well-formed whatever the run holds, nothing from outside, hostile
// text harmless, gaps and torn lines survived.
#include "train/report.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "config/load.h"
#include "config/schema.h"
#include "io/metrics.h"
#include "io/scratch_folder.h"
#include "train/report_cases.h"

namespace wych::train {
namespace {

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
    io::write_bytes(run_ / "env.json",
                    R"({"processor":"A <fast> one","cores":2,"started":"2026-01-02","version":"9.8.7",)"
                    R"("commit":"abc","threads":1})");
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
                   .add("bigram_bits_per_byte", 2.7)
                   .add("unigram_ce", std::nan(""))
                   .add_raw("domains", R"([{"name":"<c>","targets":9,"ce":4.0,"bits_per_byte":2.0},)"
                                       R"({"name":"d & e","targets":7,"ce":4.5,"bits_per_byte":2.2,)"
                                       R"("bigram_bits_per_byte":2.8}])"))
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
  EXPECT_EQ(record.load_history.size(), 60U);
  ASSERT_EQ(record.non_finite.size(), 1U);
  EXPECT_EQ(record.non_finite[0].step, 31);
  EXPECT_EQ(record.loss.back().tokens, 6000);
  EXPECT_EQ(record.validation.back().tokens, 6000);
  ASSERT_EQ(record.domains.size(), 2U);
  EXPECT_EQ(record.domains[1].name, "d & e");
  EXPECT_EQ(record.domains[1].ce, 4.5);
  EXPECT_EQ(record.events.size(), 2U);
  EXPECT_EQ(record.build, "wych 9.8.7 (abc)");
  EXPECT_EQ(record.device, "CPU, 1 thread");
  EXPECT_EQ(record.unreadable_lines, 2);
  EXPECT_TRUE(record.finished);
  EXPECT_EQ(record.samples.size(), 31U);
}

TEST_F(Report, IsWellFormedAndSelfContained) {
  const std::string html = report();
  EXPECT_EQ(markup_fault(html), "");
  EXPECT_TRUE(contains(html, "</html>"));
  EXPECT_EQ(count(html, "<img"), count(html, "<img src=\"data:image/png;base64,"));
  for (const std::string_view outside : {"http:", "https:", "//", "<script", "<link", "url(", "@import"}) {
    EXPECT_FALSE(contains(without_pictures(html), outside)) << outside;
  }
  EXPECT_TRUE(contains(html, "prefers-color-scheme"));
  EXPECT_TRUE(contains(html, "width=device-width"));
}

TEST_F(Report, ShowsWhatTheRunDid) {
  const std::string html = report();
  EXPECT_EQ(count(html, "<figure>"), 8);  // loss twice, three small ones, imbalance, two layers
  EXPECT_TRUE(contains(html, "finished"));
  EXPECT_TRUE(contains(html, "0:02:00"));
  EXPECT_TRUE(contains(html, "8 experts top-2"));
  EXPECT_TRUE(contains(html, "<dd>2.100<small>bigram 2.700\nunigram -</small>"));
  EXPECT_TRUE(contains(html, "<td>d &amp; e</td><td class=\"n\">2.200</td><td class=\"n\">2.800</td>"));
  EXPECT_TRUE(contains(html, "bigram 5.5</span>"));
  EXPECT_TRUE(contains(html, "1.00 MiB"));
  EXPECT_TRUE(contains(html, "[model.moe]"));
  EXPECT_EQ(count(html, "class=\"sample\""), 6);
  EXPECT_TRUE(contains(html, "<th>unreadable lines</th><td>2</td>"));
  EXPECT_TRUE(contains(html, "<th>skipped steps</th><td>1</td>"));
  EXPECT_TRUE(contains(html, "<th>not finite</th><td>1 steps"));
  EXPECT_TRUE(contains(html, "<th>build</th><td>wych 9.8.7 (abc)</td>"));
}

TEST_F(Report, DeadExpertsAreNamed) {
  const std::string html = report();
  EXPECT_TRUE(contains(html, "<b>1 expert is dead</b>"));
  EXPECT_TRUE(contains(html, "dead: expert 3</span>"));
  EXPECT_EQ(count(html, "class=\"y dead\""), 1);
  EXPECT_TRUE(contains(html, "most: expert 0, 2.00 x mean\nleast: expert 3, 0.00 x mean"));
}

TEST_F(Report, DetailsCarryTheValues) {
  const std::string html = report();
  EXPECT_TRUE(
      contains(html, "\"step 60, 6,000 tokens\neach step 4\ntraining, smoothed 4.075\nheld-out 4.25\""));
  EXPECT_TRUE(contains(html, "step 30, 3,000 tokens\nsmoothed"));
  EXPECT_TRUE(contains(html, "\nskipped 55\""));
  EXPECT_TRUE(contains(html, "step 31, 3,100 tokens\nnot finite\""));
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
  EXPECT_FALSE(contains(without_pictures(html), "nan"));
  EXPECT_FALSE(contains(without_pictures(html), "inf"));
}

TEST_F(Report, ForgetsWhatAResumptionTakesBack) {
  io::EventsWriter events = io::EventsWriter::open(run_.path()).value();
  events.write(10, "resume").value();
  const RunRecord record = read_run_record(run_.path()).value();
  EXPECT_FALSE(record.finished);
  EXPECT_FALSE(record.final_evaluation.has_value());
  EXPECT_EQ(record.samples.back().step, 10);
  EXPECT_EQ(record.num_sessions, 2);
  EXPECT_TRUE(record.domains.empty());
  EXPECT_TRUE(contains(report(), "at step 60 of "));
}

TEST_F(Report, ShowsWhereTokensGo) {
  write_routing(run_.path(), small_routing()).value();
  const std::string html = report();
  EXPECT_EQ(markup_fault(html), "");
  EXPECT_TRUE(contains(html, "<b>layer 0</b><span>0.000 of 1 bits</span>"));
  EXPECT_TRUE(contains(html, "<b>layer 1</b><span>1.000 of 1 bits</span>"));
  EXPECT_TRUE(contains(html, "<p><b>Yes.</b>"));
  EXPECT_TRUE(contains(html, "<th>d</th><td class=\"below\" style=\"--a:1.00\">0%</td>"));
  EXPECT_TRUE(contains(html, "<td class=\"above\" style=\"--a:1.00\">75%</td>"));
  EXPECT_TRUE(contains(html, "<code>&lt;i&gt;</code>"));
  EXPECT_TRUE(contains(html, "tells 1.25 of 2 bits"));
  EXPECT_TRUE(contains(html,
                       "<i class=\"a3 b0 given\" data-a=\"3 75% \u00b7 0 25%\" data-b=\"0 90% \u00b7 1 10%\">"
                       "&lt;b&gt;</i>"));
  EXPECT_TRUE(contains(html, ">\u21b5\n</i>"));
  EXPECT_TRUE(contains(html, "#La:checked~* .a3,#Lb:checked~* .b3{--t:var(--e3)}"));
  EXPECT_FALSE(contains(html, "\x1b"));
  // The first expert of two of three tokens in layer 1.
  EXPECT_TRUE(contains(html, "<span class=\"chip b0\">0</span> 67%, <span class=\"chip b2\">2</span> 33%"));
}

TEST_F(Report, ADamagedRoutingFileTakesNothingElseAway) {
  io::write_bytes(run_ / "routing.json", "{\"step\":1}");
  EXPECT_EQ(report().find("Tokens and their experts"), std::string::npos);
}

TEST(ReportOfLittle, MetricsAloneSuffice) {
  const io::ScratchFolder run;
  io::write_bytes(run / "metrics.jsonl", "{\"step\":1,\"train/CE loss\":7.5}\n");
  write_report(run.path()).value();
  const std::string html = io::read_bytes(run / "report.html");
  EXPECT_EQ(markup_fault(html), "");
  EXPECT_TRUE(contains(html, "7.5000"));
}

TEST(ReportOfLittle, ADenseRunHasNoExperts) {
  const io::ScratchFolder run;
  io::write_bytes(run / "metrics.jsonl",
                  "{\"step\":1,\"train/CE loss\":7.5,\"throughput/total tokens\":64}\n"
                  "{\"step\":2,\"train/CE loss\":7.25,\"throughput/total tokens\":128}\n");
  write_report(run.path()).value();
  const std::string html = io::read_bytes(run / "report.html");
  EXPECT_EQ(markup_fault(html), "");
  EXPECT_FALSE(contains(html, "<h2>Experts"));
  EXPECT_TRUE(contains(html, "step 2, 128 tokens\neach step 7.25"));
}

TEST(ReportOfLittle, ARunThatStoppedNotFiniteSaysSoFirst) {
  const io::ScratchFolder run;
  io::write_bytes(run / "metrics.jsonl",
                  "{\"step\":1,\"train/CE loss\":5.5,\"optim/total grad norm\":1}\n"
                  "{\"step\":2,\"train/CE loss\":null,\"optim/total grad norm\":null}\n");
  write_report(run.path()).value();
  const std::string html = io::read_bytes(run / "report.html");
  EXPECT_TRUE(contains(html, "stopped: not finite at step 2"));
  EXPECT_TRUE(contains(html, "the last finite steps: 5.5000"));
  EXPECT_FALSE(contains(html, "mean of the last steps"));
}

TEST(ReportOfLittle, ALossThatWasNeverFiniteIsNotDrawn) {
  const io::ScratchFolder run;
  io::write_bytes(run / "metrics.jsonl",
                  "{\"step\":1,\"train/CE loss\":null,\"optim/total grad norm\":null}\n");
  write_report(run.path()).value();
  const std::string html = io::read_bytes(run / "report.html");
  EXPECT_EQ(markup_fault(html), "");
  EXPECT_FALSE(contains(html, "<figure>"));
  EXPECT_TRUE(contains(html, "<th>not finite</th>"));
}

// 64 layers of 128 experts, one of them dead in every layer, with routes in six of the layers.
TEST(ReportOfMuch, ManyLayersAndExpertsStayReadable) {
  const io::ScratchFolder run;
  io::MetricsWriter metrics = io::MetricsWriter::open(run.path(), 0).value();
  for (i64 step = 1; step <= 100; ++step) {
    io::JsonObject line;
    line.add("train/CE loss", 5.0).add("throughput/total tokens", step * 1000);
    for (i64 block = 0; block < 64; ++block) {
      std::vector<i64> counts;
      for (i64 expert = 0; expert < 128; ++expert) {
        counts.push_back(expert == 100 ? 0 : (expert * 37 + step * 11 + block) % 90 + 10);
      }
      line.add_raw(fmt::format("moe/block {}/assigned tokens", block), io::json_list(counts));
    }
    metrics.write(step, line).value();
  }
  RoutingRecord routing;
  routing.experts = 128;
  routing.top_k = 8;
  routing.domains = {"a", "b"};
  for (i64 block = 0; block < 64; ++block) {
    routing.blocks.push_back(block);
  }
  routing.counts.assign(64, {std::vector<i64>(128, 3), std::vector<i64>(128, 4)});
  routing.detailed = detailed_layers(64);
  routing.favourites.assign(routing.detailed.size(), std::vector<std::vector<std::string>>(128));
  routing.token_information.assign(routing.detailed.size(), 1.0);
  RoutedText text{.title = "t", .num_given = 0, .tokens = std::vector<std::string>(96, "x"), .layers = {}};
  text.layers.assign(routing.detailed.size(),
                     {std::vector<i64>(96 * 8, 127), std::vector<double>(96 * 8, 0.125)});
  routing.texts.assign(5, text);
  write_routing(run.path(), routing).value();
  write_report(run.path()).value();
  const std::string html = io::read_bytes(run / "report.html");
  EXPECT_EQ(markup_fault(html), "");
  EXPECT_TRUE(contains(html, "<b>64 experts are dead</b>"));
  EXPECT_EQ(count(html, "<summary>56 more layers</summary>"), 2);
  EXPECT_EQ(count(html, "<img"), 128);
  EXPECT_LT(html.size(), 3000000U);
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

}  // namespace
}  // namespace wych::train
