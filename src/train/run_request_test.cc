// The length of the generation cache at its limits.
#include "train/run_request.h"

#include <gtest/gtest.h>

#include <limits>

namespace wych::train {
namespace {

TEST(GenerationCache, HoldsPromptAndNewTokensUpToTheSequenceLength) {
  EXPECT_EQ(generation_cache_length(128, 10, 20), 30);
  EXPECT_EQ(generation_cache_length(128, 0, 20), 21);
  EXPECT_EQ(generation_cache_length(128, 10, 0), 11);
  EXPECT_EQ(generation_cache_length(128, 100, 28), 128);
  EXPECT_EQ(generation_cache_length(128, 100, 29), 128);
  EXPECT_EQ(generation_cache_length(128, 500, 1), 128);
  constexpr i64 kMost = std::numeric_limits<i64>::max();
  EXPECT_EQ(generation_cache_length(128, 10, kMost), 128);
  EXPECT_EQ(generation_cache_length(kMost, kMost, kMost), kMost);
}

}  // namespace
}  // namespace wych::train
