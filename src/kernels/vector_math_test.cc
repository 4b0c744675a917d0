#include "kernels/vector_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/sticky_max.h"
#include "kernels/lane_sum.h"

namespace wych::kernels {
namespace {

TEST(VectorExp, IsAccurateWhereTheResultIsNormal) {
  double worst = 0;
  for (double x = -87.3; x < 88.72; x += 1e-4) {
    const auto rounded = static_cast<float>(x);
    const double expected = std::exp(static_cast<double>(rounded));
    worst = sticky_max(worst, std::abs(static_cast<double>(exp(rounded)) / expected - 1));
  }
  EXPECT_LT(worst, 1.5e-7);
}

TEST(VectorExp, ReachesSubnormalsZeroAndInfinity) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exp(-kInfinity), 0.0F);
  EXPECT_EQ(exp(-1000.0F), 0.0F);
  EXPECT_EQ(exp(-103.98F), 0.0F);
  EXPECT_GT(exp(-103.9F), 0.0F);
  EXPECT_NEAR(exp(-95.0F), std::exp(-95.0F), 2e-45F);
  EXPECT_EQ(exp(0.0F), 1.0F);
  EXPECT_LT(exp(88.72F), kInfinity);
  EXPECT_EQ(exp(88.73F), kInfinity);
  EXPECT_EQ(exp(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST(VectorExp, IsTheLibrarysInDouble) { EXPECT_EQ(exp(-1.25), std::exp(-1.25)); }

TEST(Sigmoid, SaturatesWithoutNan) {
  EXPECT_EQ(sigmoid(-1000.0F), 0.0F);
  EXPECT_EQ(sigmoid(1000.0F), 1.0F);
  EXPECT_EQ(silu(-1000.0F), 0.0F);
  EXPECT_EQ(silu(1000.0F), 1000.0F);
  EXPECT_NEAR(sigmoid(0.75F), 1 / (1 + std::exp(-0.75F)), 1e-7F);
  EXPECT_NEAR(silu(-2.5), -2.5 / (1 + std::exp(2.5)), 1e-15);
}

TEST(LaneSum, AddsEveryTermOnce) {
  for (i64 n = 0; n < 70; ++n) {
    EXPECT_EQ(lane_sum<double>(n, [](i64 i) { return static_cast<double>(i); }),
              static_cast<double>(n * (n - 1) / 2));
    EXPECT_EQ(lane_sum<float>(n, [](i64 i) { return static_cast<float>(i); }),
              static_cast<float>(n * (n - 1) / 2));
  }
}

TEST(LaneMax, FindsTheLargestAnywhere) {
  for (std::size_t n = 1; n < 70; ++n) {
    for (std::size_t at = 0; at < n; ++at) {
      std::vector<float> values(n, -3.0F);
      values[at] = -2.0F;
      EXPECT_EQ(lane_max(values.data(), static_cast<i64>(n)), -2.0F) << n << " " << at;
    }
  }
}

}  // namespace
}  // namespace wych::kernels
