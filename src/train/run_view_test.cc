// All views are given the same short run; the tests look at what arrives in the stream.
#include "train/run_view.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <limits>

#include "io/json.h"
#include "train/printable.h"
#include "train/run_text.h"

namespace wych::train {
namespace {

StepReport report_of_step(i64 step, i64 layers = 2, i64 experts = 8) {
  StepReport report;
  report.step = step;
  report.total_steps = 1000;
  report.tokens = step * 2048;
  report.ce = 3.412;
  report.balance = 1.01;
  report.grad_norm = 0.83;
  report.learning_rate = 3e-3;
  report.tokens_per_second = 12345.4;
  report.eta_seconds = 62;
  report.elapsed_seconds = 3725;
  report.imbalance = 1.42;
  report.expert_counts.assign(static_cast<std::size_t>(layers),
                              std::vector<i64>(static_cast<std::size_t>(experts), 512));
  return report;
}

// What a run prints.
std::string output(config::LogStyle style, const Terminal& terminal,
                   const std::function<void(RunView&)>& use) {
  char* data = nullptr;
  std::size_t size = 0;
  std::FILE* stream = open_memstream(&data, &size);
  const std::unique_ptr<RunView> view = make_run_view(style, terminal, 10, stream);
  use(*view);
  view->finish();
  std::fclose(stream);
  std::string text(data, size);
  std::free(data);
  return text;
}

void short_run(RunView& view, i64 layers = 2, i64 experts = 8) {
  RunHeader header;
  header.name = "laptop";
  header.dir = "runs/laptop";
  header.model = "4 layers, d_model 128, 4 heads of 32, 8 experts top-2 of 160 + shared 160, sequence 128";
  header.data = "data/laptop: 2.21 M training tokens, vocabulary 2048";
  header.memory_table = "weights  12 MiB\nscratch  3 MiB\n";
  header.total_steps = 1000;
  header.batch_tokens = 2048;
  view.header(header);
  for (i64 step = 1; step <= 12; ++step) {
    view.step(report_of_step(step, layers, experts));
  }
  EvalReport evaluation;
  evaluation.step = 12;
  evaluation.ce = 3.5;
  evaluation.bits_per_byte = 1.75;
  view.evaluated(evaluation);
  view.sampled(12, "In the beginning ",
               "\x1b[2J was\xff 漢字 the word,\nand the word was without any end to it");
  view.message("saved runs/laptop/checkpoints/step000012 in 0.02 s");
  evaluation.final = true;
  evaluation.bigram_ce = 3.9;
  evaluation.bigram_bits_per_byte = 1.95;
  evaluation.unigram_ce = 5.6;
  evaluation.unigram_bits_per_byte = 2.8;
  view.evaluated(evaluation);
}

// Lines without escape sequences.
std::vector<std::string> visible_lines(const std::string& text) {
  std::vector<std::string> lines = {""};
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i = text.find_first_of("ABCDEFGHJKlmh", i + 2);
    } else if (text[i] == '\n' || text[i] == '\r') {
      lines.emplace_back();
    } else {
      lines.back() += text[i];
    }
  }
  return lines;
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST(PlainView, PrintsAStepInOneLine) {
  EXPECT_EQ(step_line(report_of_step(12)),
            "[step=12/1000,epoch=1,eta=0:01:02] loss=3.4120 grad_norm=0.8300 lr=3.000e-03 tokens/s=12345 "
            "imbalance=1.42");
}

TEST(PlainView, SaysWhenAStepWasNotApplied) {
  StepReport report = report_of_step(12);
  report.non_finite = true;
  report.ce = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(contains(step_line(report), " loss=nan "));
  EXPECT_TRUE(step_line(report).ends_with(" non-finite"));
}

TEST(PlainView, PrintsTheFirstStepAndEveryInterval) {
  const std::string text = output(config::LogStyle::kPlain, {}, [](RunView& view) {
    for (i64 step = 5; step <= 25; ++step) {
      view.step(report_of_step(step));
    }
  });
  const std::vector<std::string> lines = visible_lines(text);
  ASSERT_EQ(lines.size(), 4U);  // and the empty one after the last line break
  EXPECT_TRUE(lines[0].starts_with("[step=5/"));
  EXPECT_TRUE(lines[1].starts_with("[step=10/"));
  EXPECT_TRUE(lines[2].starts_with("[step=20/"));
}

TEST(PlainView, IsChosenWithoutATerminalAndHasNoEscapeCodes) {
  const std::string text = output(config::LogStyle::kAuto, {}, [](RunView& view) { short_run(view); });
  EXPECT_FALSE(contains(text, "\x1b"));
  EXPECT_TRUE(contains(text, "\n[step=10/1000,"));
  EXPECT_TRUE(contains(text, "[step=12] sample: In the beginning \\x1b[2J was\\xff 漢字 the word,\\nand"));
}

TEST(PlainView, ComparesTheModelWithCounting) {
  const std::string text = output(config::LogStyle::kPlain, {}, [](RunView& view) { short_run(view); });
  EXPECT_TRUE(contains(text,
                       "held-out text             nats per token   bits per byte\n"
                       "this model                        3.5000          1.7500\n"
                       "bigram (Witten-Bell)              3.9000          1.9500\n"
                       "unigram                           5.6000          2.8000\n"));
}

TEST(LiveView, StaysWithinTheColumns) {
  for (const int columns : {10, 20, 40, 80, 200}) {
    for (const bool color : {false, true}) {
      const std::string text =
          output(config::LogStyle::kAuto, {.interactive = true, .color = color, .columns = columns},
                 [](RunView& view) { short_run(view, 3, 70); });
      for (const std::string& line : visible_lines(text)) {
        EXPECT_LE(display_width(line), columns) << line;
      }
    }
  }
}

TEST(LiveView, HasNoColourCodesWithoutColour) {
  const auto run = [](bool color) {
    return output(config::LogStyle::kAuto, {.interactive = true, .color = color, .columns = 80},
                  [](RunView& view) { short_run(view); });
  };
  const auto has_colour = [](const std::string& text) {
    for (std::size_t at = text.find("\x1b["); at != std::string::npos; at = text.find("\x1b[", at + 1)) {
      if (text[text.find_first_not_of("0123456789;?", at + 2)] == 'm') {
        return true;
      }
    }
    return false;
  };
  EXPECT_FALSE(has_colour(run(false)));
  EXPECT_TRUE(has_colour(run(true)));
}

TEST(LiveView, EscapesWhatAModelWrites) {
  const std::string text = output(config::LogStyle::kLive, {.columns = 80}, [](RunView& view) {
    view.sampled(1, "\x1b[?1049h", "\x1b]0;title\x07\x1b[2J\xff");
  });
  EXPECT_TRUE(contains(text, "\\x1b[?1049h\\x1b]0;title\\x07\\x1b[2J\\xff"));
  EXPECT_FALSE(contains(text, "\x1b[?1049h"));
  EXPECT_FALSE(contains(text, "\x1b[2J"));
  EXPECT_FALSE(contains(text, "\x07"));
}

TEST(LiveView, FitsManyLayersIntoTheRows) {
  const std::string text = output(config::LogStyle::kLive, {.columns = 80},
                                  [](RunView& view) { view.step(report_of_step(1, 60)); });
  const std::size_t frame = text.rfind("\x1b[?2026h");
  const std::vector<std::string> lines = visible_lines(text.substr(frame));
  EXPECT_LE(lines.size(), 24U);
  EXPECT_TRUE(contains(text, "more layers"));
}

TEST(LiveView, EndsEveryFrameWithTheCursorShown) {
  const std::string text =
      output(config::LogStyle::kLive, {.columns = 80}, [](RunView& view) { short_run(view); });
  EXPECT_GT(text.rfind("\x1b[?25h"), text.rfind("\x1b[?25l"));
  EXPECT_GT(text.rfind("\x1b[?7h"), text.rfind("\x1b[?7l"));
}

TEST(LiveView, MovesUpByWhatItDrew) {
  const std::string text = output(config::LogStyle::kLive, {.columns = 80}, [](RunView& view) {
    view.step(report_of_step(1));
    view.message("hello");
  });
  // Blank, progress, numbers on two lines, plot, two layers.
  EXPECT_TRUE(contains(text, "\r\x1b[9Ahello"));
}

TEST(JsonView, PrintsValidObjects) {
  StepReport bad = report_of_step(20);
  bad.ce = std::numeric_limits<double>::infinity();
  const std::string text = output(config::LogStyle::kJson, {.interactive = true}, [&bad](RunView& view) {
    short_run(view);
    view.step(bad);
  });
  i64 num_steps = 0;
  for (const std::string& line : visible_lines(text)) {
    if (line.empty()) {
      continue;
    }
    const Expected<io::Json> object = io::parse_json(line, "line", ErrorKind::kInternal);
    ASSERT_TRUE(object) << line;
    const io::Json* event = object->find("event");
    ASSERT_NE(event, nullptr);
    num_steps += *event->get<std::string>() == "step" ? 1 : 0;
  }
  EXPECT_EQ(num_steps, 3);  // 1, 10, 20
  EXPECT_TRUE(contains(text, R"("train/CE loss":3.412)"));
  EXPECT_TRUE(contains(text, R"("train/CE loss":null)"));
}

TEST(RunText, FormatsDurations) {
  EXPECT_EQ(duration_text(0), "0:00:00");
  EXPECT_EQ(duration_text(3725.4), "1:02:05");
  EXPECT_EQ(duration_text(360000), "100:00:00");
  EXPECT_EQ(duration_text(std::numeric_limits<double>::infinity()), "?");
  EXPECT_EQ(duration_text(-1), "?");
}

TEST(RunText, FormatsCounts) {
  EXPECT_EQ(grouped_digits(0), "0");
  EXPECT_EQ(grouped_digits(123), "123");
  EXPECT_EQ(grouped_digits(1234567), "1,234,567");
  EXPECT_EQ(grouped_digits(-1234), "-1,234");
  EXPECT_EQ(grouped_digits(-123), "-123");
  EXPECT_EQ(short_count(9999), "9999");
  EXPECT_EQ(short_count(12345), "12.3 k");
  EXPECT_EQ(short_count(999'600), "1.00 M");
  EXPECT_EQ(short_count(6'919'161'856), "6.92 B");
}

}  // namespace
}  // namespace wych::train
