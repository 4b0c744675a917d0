#include "train/live_graphics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "train/printable.h"

namespace wych::train {
namespace {

std::string loads_text(std::vector<i64> loads, int columns, bool color = false) {
  StyledLine line(200, color);
  add_expert_loads(line, columns, loads);
  return line.text();
}

TEST(ProgressBar, FillsInProportion) {
  const auto bar = [](double fraction) {
    StyledLine line(80, false);
    add_progress_bar(line, 4, fraction);
    return line.text();
  };
  EXPECT_EQ(bar(0), "────");
  EXPECT_EQ(bar(0.5), "━━──");
  EXPECT_EQ(bar(1), "━━━━");
  EXPECT_EQ(bar(1.5), "━━━━");
}

TEST(ExpertLoads, PutTheMeanAtHalfHeight) {
  EXPECT_EQ(loads_text({10, 10, 10, 10}, 4), "▄▄▄▄");
  EXPECT_EQ(loads_text({5, 15, 0, 20}, 4), "▂▆×█");
  EXPECT_EQ(loads_text({10, 10}, 12), "▄▄ ▄▄ ");  // cells are wider where there is room
}

TEST(ExpertLoads, ShowTheOddNeighbourWhereTheyDoNotFit) {
  EXPECT_EQ(loads_text({10, 10, 10, 10, 10, 10, 0, 10}, 4), "▅▅▅×");
}

TEST(ExpertLoads, AreColouredByDistanceFromTheMean) {
  EXPECT_EQ(loads_text({10, 10, 10}, 3, true), "\x1b[0;32m▄▄▄\x1b[0m");
  EXPECT_EQ(load_grade(1.0), LoadGrade::kNear);
  EXPECT_EQ(load_grade(2.0), LoadGrade::kOff);
  EXPECT_EQ(load_grade(0.5), LoadGrade::kOff);
  EXPECT_EQ(load_grade(4.0), LoadGrade::kFar);
  EXPECT_EQ(load_grade(0.1), LoadGrade::kFar);
  EXPECT_EQ(load_grade(0.0), LoadGrade::kDead);
}

TEST(ExpertLoads, SurviveAnUnroutedLayer) { EXPECT_EQ(loads_text({0, 0}, 2), "××"); }

TEST(LossHistory, AveragesEqualStretches) {
  LossHistory history(4);
  history.add(1, 8);
  history.add(2, 6);
  history.add(3, 4);
  const std::vector<double> means = history.resample(2);
  EXPECT_EQ(means[0], 7);
  EXPECT_EQ(means[1], 4);
  EXPECT_TRUE(std::isnan(history.resample(4)[3]));
}

TEST(LossHistory, StaysSmallAndIgnoresWhatIsNotALoss) {
  LossHistory history(10'000'000'000);
  history.add(10'000'000'000, 2);
  history.add(1, std::numeric_limits<double>::quiet_NaN());
  history.add(0, 5);
  history.add(10'000'000'001, 5);
  const std::vector<double> means = history.resample(10);
  EXPECT_EQ(means[9], 2);
  EXPECT_TRUE(std::isnan(means[0]));
}

TEST(LossPlot, FallsFromTopToBottom) {
  LossHistory history(40);
  for (i64 step = 1; step <= 40; ++step) {
    history.add(step, 41.0 - static_cast<double>(step));
  }
  const LossPlot plot = plot_losses(history, 20, 2);
  ASSERT_EQ(plot.rows.size(), 2U);
  EXPECT_EQ(plot.bottom, 1);
  EXPECT_EQ(plot.top, 38);  // the highest twentieth is above the edge
  EXPECT_EQ(plot.rows[0], " ⠉⠑⠒⠒⠤⠤⠤⣀⣀⡀         ");
}

TEST(LossPlot, IsEmptyBeforeTheFirstStep) {
  const LossPlot plot = plot_losses(LossHistory(10), 3, 1);
  EXPECT_EQ(plot.rows, std::vector<std::string>{"   "});
  EXPECT_TRUE(std::isnan(plot.top));
}

TEST(LossPlot, DrawsAConstantInTheMiddle) {
  LossHistory history(2);
  history.add(1, 3);
  history.add(2, 3);
  EXPECT_EQ(plot_losses(history, 1, 1).rows, std::vector<std::string>{"⠤"});
}

}  // namespace
}  // namespace wych::train
