#include "pipeline/schedule.h"

#include <gtest/gtest.h>

namespace wych::pipeline {
namespace {

TEST(Schedule, OneStageIsGradientAccumulation) {
  EXPECT_EQ(schedule_text(one_stage(3)), "0F0 0B0 0F1 0B1 0F2 0B2\n");
  for (i32 num_microbatches = 1; num_microbatches <= 32; ++num_microbatches) {
    const Schedule schedule = one_stage(num_microbatches);
    EXPECT_TRUE(validate(schedule, 1, num_microbatches).has_value());
    EXPECT_EQ(max_in_flight(schedule[0]), 1);
  }
}

TEST(Schedule, ValidateFindsADeadlock) {
  // Stage 1 wants the backward of microbatch 1 before stage 0 sent its forward, which waits for B0.
  const Schedule schedule = {
      {{0, Kind::kForward, 0}, {0, Kind::kBackward, 0}, {0, Kind::kForward, 1}, {0, Kind::kBackward, 1}},
      {{1, Kind::kForward, 0}, {1, Kind::kForward, 1}, {1, Kind::kBackward, 0}, {1, Kind::kBackward, 1}}};
  const Expected<void> result = validate(schedule, 2, 2);
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().what.find("waits for ever before 0B0"), std::string::npos)
      << result.error().text();
}

TEST(Schedule, ValidateFindsMissingRepeatedAndMisplacedActions) {
  EXPECT_FALSE(validate({{{0, Kind::kForward, 0}}}, 1, 1).has_value());
  EXPECT_FALSE(validate({{{0, Kind::kForward, 0}, {0, Kind::kForward, 0}}}, 1, 1).has_value());
  EXPECT_FALSE(validate({{{0, Kind::kBackward, 0}, {0, Kind::kForward, 0}}}, 1, 1).has_value());
  EXPECT_FALSE(validate({{{0, Kind::kForward, 1}, {0, Kind::kBackward, 1}}}, 1, 1).has_value());
  EXPECT_FALSE(validate({{{0, Kind::kForward, 0}}, {{0, Kind::kBackward, 0}}}, 1, 1).has_value());
}

TEST(Schedule, InFlightCountsOpenMicrobatches) {
  EXPECT_EQ(
      max_in_flight(
          {{0, Kind::kForward, 0}, {0, Kind::kForward, 1}, {0, Kind::kBackward, 0}, {0, Kind::kBackward, 1}}),
      2);
}

}  // namespace
}  // namespace wych::pipeline
