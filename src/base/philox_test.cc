// Philox against published vectors; the normal transform against erfc over its whole domain, and its bits.
#include "base/philox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "base/sticky_max.h"

namespace wych {
namespace {

using Words = std::array<u32, 4>;

Words philox(Words counter, u32 key0, u32 key1) {
  const PhiloxBlock block = philox4x32_10({{counter[0], counter[1], counter[2], counter[3]}}, key0, key1);
  return {block.words[0], block.words[1], block.words[2], block.words[3]};
}

double normal_cdf(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

// The probability that normal_from_word assigns to its word.
double probability_of(u32 word) {
  return (static_cast<double>(static_cast<i32>(word)) + 0.5) * 0x1p-32 + 0.5;
}

TEST(Philox, MatchesKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr u32 kOnes = 0xffffffff;
  EXPECT_EQ(philox({kOnes, kOnes, kOnes, kOnes}, kOnes, kOnes),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, SeedStepHashAndIndexAllMatter) {
  const u32 word = random_word(random_stream(1, 2, 3), 4);
  EXPECT_NE(word, random_word(random_stream(2, 2, 3), 4));
  EXPECT_NE(word, random_word(random_stream(1, 3, 3), 4));
  EXPECT_NE(word, random_word(random_stream(1, 2, 4), 4));
  EXPECT_NE(word, random_word(random_stream(1, 2, 3), 5));
  EXPECT_NE(word, random_word(random_stream(1, 2, 3), 4 + (u64{1} << 34U)));
}

TEST(RandomStream, FillsEqualRandomAccessAtAnyCut) {
  const RandomStream stream = random_stream(7, 0, 0x1234);
  const u64 first = (u64{1} << 33U) + 1;
  std::vector<float> normal(23);
  std::vector<float> uniform(23);
  for (const i64 cut : {0, 1, 2, 3, 4, 9, 23}) {
    const u64 second = first + static_cast<u64>(cut);
    fill_normal(stream, first, normal.data(), cut);
    fill_normal(stream, second, normal.data() + cut, 23 - cut);
    fill_uniform(stream, first, uniform.data(), cut);
    fill_uniform(stream, second, uniform.data() + cut, 23 - cut);
    for (u64 i = 0; i < 23; ++i) {
      ASSERT_EQ(normal[i], random_normal(stream, first + i)) << "cut " << cut << ", element " << i;
      ASSERT_EQ(uniform[i], random_uniform(stream, first + i)) << "cut " << cut << ", element " << i;
    }
  }
}

TEST(Uniform, StaysInTheHalfOpenUnitInterval) {
  EXPECT_EQ(uniform_from_word(0), 0.0F);
  EXPECT_EQ(uniform_from_word(0xffffffff), 1.0F - 0x1p-24F);
  EXPECT_EQ(uniform_from_word(0x80000000), 0.5F);
}

TEST(Normal, InvertsTheDistributionFunctionEverywhere) {
  // Error in z = error in probability / density. Steps through every region and octave of the tail.
  double worst = 0;
  const auto visit = [&](u32 word) {
    const double z = normal_from_word(word);
    // Compare in the lower tail, where probabilities near 0 keep their digits.
    const double p = std::min(probability_of(word), probability_of(~word));
    const double density = std::exp(-z * z / 2) / std::sqrt(2 * M_PI);
    worst = sticky_max(worst, std::abs(normal_cdf(-std::abs(z)) - p) / density / std::max(1.0, std::abs(z)));
  };
  for (u64 word = 0; word < (u64{1} << 32U); word += 4093) {
    visit(static_cast<u32>(word));
  }
  for (u32 tail = 0; tail < 200000; ++tail) {
    visit(0x80000000U + tail);
    visit(0x7fffffffU - tail);
  }
  EXPECT_LT(worst, 5e-7);  // a few roundings: 4 units in the last place
}

TEST(Normal, IsOddAndFiniteAtTheExtremes) {
  for (const u32 word : {0U, 1U, 0x7fffffffU, 0x7ffffffeU, 0x40000000U, 0x70000000U, 0x6fffffffU}) {
    EXPECT_EQ(normal_from_word(word), -normal_from_word(~word));
    EXPECT_GT(normal_from_word(word), 0.0F);
    EXPECT_LT(normal_from_word(word), 6.34F);
  }
  EXPECT_GT(normal_from_word(0x7fffffff), 6.2F);
  EXPECT_LT(normal_from_word(0), 1e-9F);
}

TEST(Normal, NeverDecreasesAcrossTheSeamOfItsTwoRegions) {
  const u32 seam = 0x70000000U;  // 0.4375 * 2^32
  float previous = normal_from_word(seam - 4000000);
  for (u32 word = seam - 4000000; word < seam + 4000000; word += 4000) {
    const float z = normal_from_word(word);
    ASSERT_GE(z, previous - 5e-7F) << word;
    previous = z;
  }
}

TEST(Normal, KeepsItsBits) {
  // Any build that contracts, reorders or replaces an operation shows here.
  const std::array<u32, 6> words = {0x00000000, 0x12345678, 0x6fffffff, 0x7a000000, 0xdeadbeef, 0x80000000};
  std::array<u32, 6> bits{};
  std::transform(words.begin(), words.end(), bits.begin(),
                 [](u32 word) { return std::bit_cast<u32>(normal_from_word(word)); });
  EXPECT_EQ(bits,
            (std::array<u32, 6>{799042715, 1043824938, 1069833742, 1073636364, 3198820531, 3234517133}));
  u32 sum = 0;
  for (u64 i = 0; i < 100000; ++i) {
    sum += std::bit_cast<u32>(random_normal(random_stream(1, 2, 3), i));
  }
  EXPECT_EQ(sum, 2034924221U);
}

TEST(Normal, MomentsAndQuantilesOfASample) {
  constexpr i64 kCount = 1 << 20;
  std::vector<float> sample(kCount);
  fill_normal(random_stream(42, 0, 99), 0, sample.data(), kCount);
  double sum = 0;
  double square = 0;
  double cube = 0;
  double fourth = 0;
  for (const double z : sample) {
    sum += z;
    square += z * z;
    cube += z * z * z;
    fourth += z * z * z * z;
  }
  // Five standard errors: Var(z^k) = 1, 2, 15, 96.
  const double n = kCount;
  EXPECT_NEAR(sum / n, 0, 5 * std::sqrt(1 / n));
  EXPECT_NEAR(square / n, 1, 5 * std::sqrt(2 / n));
  EXPECT_NEAR(cube / n, 0, 5 * std::sqrt(15 / n));
  EXPECT_NEAR(fourth / n, 3, 5 * std::sqrt(96 / n));
  std::sort(sample.begin(), sample.end());
  double distance = 0;  // Kolmogorov-Smirnov
  for (i64 i = 0; i < kCount; ++i) {
    const double expected = normal_cdf(sample[static_cast<std::size_t>(i)]);
    distance = std::max({distance, std::abs(expected - static_cast<double>(i) / n),
                         std::abs(expected - static_cast<double>(i + 1) / n)});
  }
  EXPECT_LT(distance, 2.0 / std::sqrt(n));  // exceeded with probability 7e-4
  for (const double z : {-4.0, -3.0, 3.0, 4.0}) {
    const auto below = std::lower_bound(sample.begin(), sample.end(), static_cast<float>(z)) - sample.begin();
    const double p = normal_cdf(z);
    EXPECT_NEAR(static_cast<double>(below), n * p, 5 * std::sqrt(n * p * (1 - p))) << z;
  }
}

TEST(Normal, NeighboursAndStreamsAreUncorrelated) {
  constexpr i64 kCount = 1 << 18;
  std::vector<float> a(kCount);
  std::vector<float> b(kCount);
  fill_normal(random_stream(42, 0, 99), 0, a.data(), kCount);
  fill_normal(random_stream(42, 1, 99), 0, b.data(), kCount);
  double neighbours = 0;
  double streams = 0;
  for (std::size_t i = 0; i + 1 < a.size(); ++i) {
    neighbours += static_cast<double>(a[i]) * static_cast<double>(a[i + 1]);
    streams += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  const double bound = 5 * std::sqrt(static_cast<double>(kCount));
  EXPECT_LT(std::abs(neighbours), bound);
  EXPECT_LT(std::abs(streams), bound);
}

}  // namespace
}  // namespace wych
