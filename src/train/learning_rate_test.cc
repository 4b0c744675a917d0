#include "train/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace wych::train {
namespace {

LearningRateSchedule schedule(config::ScheduleType type) {
  return {.type = type, .peak = 2.0, .final_ratio = 0.1, .warmup = 10, .decay = 20, .total = 110};
}

TEST(LearningRate, WarmsUpLinearlyAndReachesThePeakOnTime) {
  for (const auto type : {config::ScheduleType::kConstant, config::ScheduleType::kWsd,
                          config::ScheduleType::kCosine, config::ScheduleType::kLinear}) {
    const LearningRateSchedule rate = schedule(type);
    EXPECT_DOUBLE_EQ(rate.at(0), 2.0 / 11);
    EXPECT_DOUBLE_EQ(rate.at(9), 20.0 / 11);
    EXPECT_DOUBLE_EQ(rate.at(10), 2.0);
  }
}

TEST(LearningRate, ConstantStays) {
  EXPECT_DOUBLE_EQ(schedule(config::ScheduleType::kConstant).at(109), 2.0);
}

TEST(LearningRate, WsdIsStableThenFallsStraight) {
  const LearningRateSchedule rate = schedule(config::ScheduleType::kWsd);
  EXPECT_DOUBLE_EQ(rate.at(89), 2.0);
  EXPECT_DOUBLE_EQ(rate.at(90), 2.0);
  EXPECT_NEAR(rate.at(100), 2.0 * (1 - 0.5 * 0.9), 1e-12);
  EXPECT_NEAR(rate.at(110), 0.2, 1e-12);
}

TEST(LearningRate, LinearAndCosineMeetHalfWayAndAtTheEnd) {
  const double half_way = 2.0 * (1 - 0.5 * 0.9);
  EXPECT_NEAR(schedule(config::ScheduleType::kLinear).at(60), half_way, 1e-12);
  EXPECT_NEAR(schedule(config::ScheduleType::kCosine).at(60), half_way, 1e-12);
  EXPECT_NEAR(schedule(config::ScheduleType::kCosine).at(35),
              2.0 * (1 - 0.9 * 0.5 * (1 - std::numbers::sqrt2 / 2)), 1e-12);
  EXPECT_NEAR(schedule(config::ScheduleType::kCosine).at(110), 0.2, 1e-12);
}

TEST(LearningRate, StaysAtTheEndBeyondTheLastStep) {
  EXPECT_NEAR(schedule(config::ScheduleType::kLinear).at(1000), 0.2, 1e-12);
}

}  // namespace
}  // namespace wych::train
