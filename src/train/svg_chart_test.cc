// Charts: where values land, gaps, scales, details.
#include "train/svg_chart.h"

#include <gtest/gtest.h>

#include <cmath>

#include "train/html.h"
#include "train/report_cases.h"

namespace wych::train {
namespace {

LineChart one_series(std::vector<Point> points, bool log_scale = false) {
  return {.id = "t",
          .title = "t",
          .unit = "",
          .log_values = log_scale,
          .series = {{"s", 0, Mark::kLine, std::move(points)}}};
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
  EXPECT_EQ(count(html, "<input"), 80);
  // The spike's place: 9 on an axis from 0.68 to 9.32.
  EXPECT_TRUE(contains(html, "543.2 37.0"));
}

TEST(LineChart, LevelsAndSinglePointsHaveAnAxis) {
  for (const double value : {0.0, 5.0, -5.0, 1e20, 1e-20}) {
    const std::string html = line_chart(one_series({{7, value}, {8, value}}));
    EXPECT_GE(count(html, "class=\"y\""), 2) << value;
    EXPECT_FALSE(contains(html, "nan")) << value;
  }
  EXPECT_TRUE(contains(line_chart(one_series({{7, 1}})), "M1000.0 "));  // on an axis from 0
  EXPECT_GE(count(line_chart(one_series({{7, 1.3}, {8, 1.4}}, true)), "class=\"y\""), 2);
  EXPECT_EQ(line_chart(one_series({{7, std::nan("")}})), "");
  EXPECT_EQ(line_chart({}), "");
}

TEST(LineChart, GoesByTokensWhereTheyAreKnown) {
  const std::string html = line_chart(one_series({{1, 5, 1000}, {2, 5, 2000}, {3, 5, 5000}}));
  EXPECT_TRUE(contains(html, "M0.0 500.0h0L250.0 500.0L1000.0 500.0")) << html;
  EXPECT_TRUE(contains(html, ">tokens</span>"));
  LineChart chart = one_series({{1, 5, 0}, {2, 5, 0}});
  EXPECT_TRUE(contains(line_chart(chart), ">steps</span>"));
}

TEST(LineChart, LogarithmicAcrossHasEqualDecades) {
  LineChart chart = one_series({{1, 5, 100}, {2, 5, 1000}, {3, 5, 10000}});
  chart.log_x = true;
  EXPECT_TRUE(contains(line_chart(chart), "M0.0 500.0h0L500.0 500.0L1000.0 500.0"));
}

TEST(LineChart, LevelsCrossTheWholeChartAndTicksNeedNoValue) {
  LineChart chart = one_series({{1, 0}, {11, 10}});
  chart.series.push_back({"bound", 2, Mark::kLevel, {{0, 5, 0}}});
  chart.series.push_back({"bad", 4, Mark::kTicks, {{6, std::nan("")}}});
  const std::string html = line_chart(chart);
  EXPECT_TRUE(contains(html, "class=\"c2 line level\" d=\"M0 519.2H1000\"")) << html;
  EXPECT_TRUE(contains(html, ">bound 5</span>"));
  EXPECT_TRUE(contains(html, "d=\"M500.0 0V50\""));
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

TEST(Html, Base64IsThatOfTheRfc) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64("\xff\xfe\xfb"), "//77");
}

}  // namespace
}  // namespace wych::train
