#include "plan/pack.h"

#include <gtest/gtest.h>

#include <random>

namespace wych::plan {
namespace {

constexpr i64 kUnit = 64;

bool disjoint(const std::vector<Interval>& intervals, const Packing& packing) {
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const bool together = intervals[i].begin <= intervals[j].end && intervals[j].begin <= intervals[i].end;
      const bool apart = packing.offsets[i] + intervals[i].bytes <= packing.offsets[j] ||
                         packing.offsets[j] + intervals[j].bytes <= packing.offsets[i];
      if (together && !apart) {
        return false;
      }
    }
  }
  return true;
}

TEST(Pack, NothingNeedsNothing) {
  const Packing packing = pack({}, kUnit);
  EXPECT_EQ(packing.bytes, 0);
  EXPECT_EQ(packing.lower_bound, 0);
}

TEST(Pack, ReachesTheLowerBoundOnChains) {
  // Each buffer overlaps its neighbour by one step: two are live at a time.
  std::vector<Interval> chain;
  for (i32 i = 0; i < 50; ++i) {
    chain.push_back({kUnit, i, i + 1});
  }
  const Packing packing = pack(chain, kUnit);
  EXPECT_EQ(packing.lower_bound, 2 * kUnit);
  EXPECT_EQ(packing.bytes, 2 * kUnit);
  EXPECT_TRUE(disjoint(chain, packing));
}

TEST(Pack, ReachesTheLowerBoundOnForwardThenBackward) {
  // Activation i lives from its forward step i to its backward step 2n - i.
  constexpr i32 kLayers = 24;
  std::vector<Interval> activations;
  for (i32 i = 0; i < kLayers; ++i) {
    activations.push_back({(1 + i % 3) * kUnit, i, 2 * kLayers - i});
  }
  const Packing packing = pack(activations, kUnit);
  EXPECT_EQ(packing.bytes, packing.lower_bound);
  EXPECT_EQ(packing.peak_step, kLayers - 1);
  EXPECT_TRUE(disjoint(activations, packing));
}

TEST(Pack, RoundsSizesAndKeepsOffsetsAligned) {
  const std::vector<Interval> intervals = {{1, 0, 0}, {kUnit + 1, 0, 0}, {kUnit, 0, 0}};
  const Packing packing = pack(intervals, kUnit);
  EXPECT_EQ(packing.bytes, 4 * kUnit);
  for (const i64 offset : packing.offsets) {
    EXPECT_EQ(offset % kUnit, 0);
  }
}

TEST(Pack, StaysCorrectAndCloseToTheBoundOnRandomIntervals) {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    std::vector<Interval> intervals;
    for (int i = 0; i < 200; ++i) {
      const auto begin = static_cast<i32>(random() % 100);
      intervals.push_back(
          {static_cast<i64>(random() % 5000), begin, begin + static_cast<i32>(random() % 30)});
    }
    const Packing packing = pack(intervals, kUnit);
    EXPECT_TRUE(disjoint(intervals, packing));
    EXPECT_GE(packing.bytes, packing.lower_bound);
    EXPECT_LE(static_cast<double>(packing.bytes), 1.35 * static_cast<double>(packing.lower_bound));
  }
}

}  // namespace
}  // namespace wych::plan
