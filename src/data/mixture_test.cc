// Counts of a mixture: exact totals, shares to within one instance, no accidental repetition.
#include "data/mixture.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>

namespace wych::data {
namespace {

i64 sum(const std::vector<i64>& values) { return std::accumulate(values.begin(), values.end(), i64{0}); }

const std::vector<i64> kUnlimited(3, 1000);

TEST(Apportion, RoundsByLargestRemainders) {
  const std::vector<double> weights = {0.7, 0.2, 0.1};
  EXPECT_EQ(apportion(10, weights, kUnlimited), (std::vector<i64>{7, 2, 1}));
  EXPECT_EQ(apportion(11, weights, kUnlimited), (std::vector<i64>{8, 2, 1}));  // 7.7 2.2 1.1
  EXPECT_EQ(apportion(4, std::vector<double>{1, 1, 1}, kUnlimited), (std::vector<i64>{2, 1, 1}));
  EXPECT_EQ(apportion(0, weights, kUnlimited), (std::vector<i64>{0, 0, 0}));
  EXPECT_EQ(apportion(5, std::vector<double>{0, 1, 0}, kUnlimited), (std::vector<i64>{0, 5, 0}));
}

TEST(Apportion, GivesWhatALimitHoldsBackToTheOthers) {
  EXPECT_EQ(apportion(10, std::vector<double>{0.8, 0.1, 0.1}, std::vector<i64>{4, 100, 100}),
            (std::vector<i64>{4, 3, 3}));
  EXPECT_EQ(apportion(10, std::vector<double>{1, 1, 1}, std::vector<i64>{2, 3, 5}),
            (std::vector<i64>{2, 3, 5}));
}

TEST(Apportion, IsExactForAnyNumbers) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 2000; ++round) {
    const std::size_t count = 1 + random() % 20;
    std::vector<double> weights(count);
    std::vector<i64> limits(count);
    for (std::size_t i = 0; i < count; ++i) {
      weights[i] = static_cast<double>(1 + random() % 1000) / 7.0;
      limits[i] = static_cast<i64>(random() % 100000);
    }
    const i64 total = static_cast<i64>(random() % static_cast<u64>(sum(limits) + 1));
    const std::vector<i64> parts = apportion(total, weights, limits);
    EXPECT_EQ(sum(parts), total);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_GE(parts[i], 0);
      EXPECT_LE(parts[i], limits[i]);
    }
  }
}

TEST(Mixture, GivesEachSourceItsShareOfTheTokensAskedFor) {
  const std::vector<MixtureSource> sources = {{.name = "web", .weight = 0.7, .instances = {600, 400}},
                                              {.name = "code", .weight = 0.3, .instances = {500}}};
  const Mixture mixture = mix_sources(sources, 1000).value();
  EXPECT_EQ(mixture.shares[0].chosen, 700);
  EXPECT_EQ(mixture.shares[1].chosen, 300);
  EXPECT_EQ(mixture.ranges, (std::vector<InstanceRange>{{0, 420}, {1, 280}, {2, 300}}));
}

// A relative slack would find an instance too many from 10^9 on.
TEST(Mixture, CountsExactlyInSourcesOfAnySize) {
  for (const i64 size : {i64{10}, i64{1'000'000'000}, i64{1'050'000'000}, i64{4'294'967'295}}) {
    const std::vector<MixtureSource> sources = {{.name = "all", .weight = 1, .instances = {size}}};
    const Mixture mixture = mix_sources(sources, size).value();
    EXPECT_EQ(mixture.shares[0].usable, size);
    EXPECT_EQ(mixture.ranges, (std::vector<InstanceRange>{{0, size}}));
    EXPECT_FALSE(mix_sources(sources, size + 1).has_value());
  }
  const std::vector<MixtureSource> tenths = {
      {.name = "a", .weight = 1, .max_fraction = 0.3, .instances = {10}}};
  EXPECT_EQ(mix_sources(tenths, 3).value().shares[0].usable, 3);
}

TEST(Mixture, RepeatsWholePassesOnlyWhereAllowed) {
  std::vector<MixtureSource> sources = {{.name = "web", .weight = 0.5, .instances = {1000}},
                                        {.name = "books", .weight = 0.5, .instances = {100, 60}}};
  const auto refused = mix_sources(sources, 800);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(
      refused.error().text().find("data.source.books: a share of 0.5 is 400 of 800 instances; it has 160, of "
                                  "which 160 may be read 1 times"),
      std::string::npos)
      << refused.error().text();
  EXPECT_NE(refused.error().text().find("a max_repetition of 2.5"), std::string::npos);
  sources[1].max_repetition = 2.5;
  const Mixture mixture = mix_sources(sources, 800).value();
  EXPECT_EQ(mixture.ranges,
            (std::vector<InstanceRange>{{0, 400}, {1, 100}, {2, 60}, {1, 100}, {2, 60}, {1, 50}, {2, 30}}));
}

TEST(Mixture, KeepsWithinTheFractionOfASource) {
  const std::vector<MixtureSource> sources = {
      {.name = "a", .weight = 1, .max_repetition = 2, .max_fraction = 0.3, .instances = {10, 10}}};
  const Mixture mixture = mix_sources(sources, 9).value();
  EXPECT_EQ(mixture.shares[0].usable, 6);
  EXPECT_EQ(mixture.ranges, (std::vector<InstanceRange>{{0, 3}, {1, 3}, {0, 2}, {1, 1}}));
  EXPECT_TRUE(mix_sources(sources, 12).has_value());
  EXPECT_FALSE(mix_sources(sources, 13).has_value());
}

TEST(Mixture, LeavesOutASourceWithoutWeight) {
  const std::vector<MixtureSource> sources = {{.name = "a", .weight = 0, .instances = {}},
                                              {.name = "b", .weight = 2, .instances = {5}}};
  EXPECT_EQ(mix_sources(sources, 5).value().ranges, (std::vector<InstanceRange>{{0, 5}}));
}

// However the numbers fall, rounding never reads an instance more often than its source's passes demand.
TEST(Mixture, NeverRepeatsByAccident) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 500; ++round) {
    std::vector<MixtureSource> sources(1 + random() % 4);
    for (MixtureSource& source : sources) {
      source.weight = static_cast<double>(1 + random() % 10);
      source.max_repetition = 1 + static_cast<double>(random() % 30) / 10;
      for (std::size_t f = 0; f < 1 + random() % 5; ++f) {
        source.instances.push_back(static_cast<i64>(random() % 50));
      }
    }
    const i64 total = 1 + static_cast<i64>(random() % 200);
    const auto mixture = mix_sources(sources, total);
    if (!mixture) {
      continue;
    }
    std::map<std::pair<i64, i64>, i64> reads;  // (file, instance)
    i64 count = 0;
    for (const InstanceRange& range : mixture->ranges) {
      count += range.count;
      for (i64 i = 0; i < range.count; ++i) {
        ++reads[{range.file, i}];
      }
    }
    EXPECT_EQ(count, total);
    i64 file = 0;
    for (std::size_t s = 0; s < sources.size(); ++s) {
      const MixtureShare& share = mixture->shares[s];
      const i64 most = share.available == 0 ? 0 : ceil_div(share.chosen, share.available);
      for (const i64 instances : sources[s].instances) {
        for (i64 i = 0; i < instances; ++i) {
          const i64 times = reads[{file, i}];
          EXPECT_LE(times, most);
          EXPECT_GE(times, share.chosen / std::max<i64>(share.available, 1));
        }
        ++file;
      }
    }
  }
}

}  // namespace
}  // namespace wych::data
