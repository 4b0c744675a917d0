// Vectors of numpy 2.4: Generator(PCG64(seed)).bit_generator.random_raw and .shuffle(arange(n,
// dtype=uint32)).
#include "data/numpy_random.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace wych::data {
namespace {

std::vector<u32> shuffled(u64 seed, std::size_t count) {
  std::vector<u32> values(count);
  std::iota(values.begin(), values.end(), 0U);
  NumpyGenerator(seed).shuffle(values);
  return values;
}

// h = h * 1099511628211 + value + 1 over all values.
u64 fold(const std::vector<u32>& values) {
  u64 hash = 0;
  for (const u32 value : values) {
    hash = hash * 1099511628211U + value + 1;
  }
  return hash;
}

TEST(NumpyGenerator, DrawsNumpysBits) {
  struct Vector {
    u64 seed;
    u64 words[3];
  };
  const Vector vectors[] = {
      {0, {0xa30febcfd9c2825fU, 0x4510bdf882d9d721U, 0x0a7d3da94ecde8b8U}},
      {42, {0xc621fbcd16d92688U, 0x705a5661a791ffc1U, 0xdbcd12c26eda1624U}},
      {34521, {0x3f529d6e6603bfaaU, 0x517c4f0d5fd4d6adU, 0x11e7a8c5d092f2ffU}},
      {4294967303U, {0xc527f515dec95ccdU, 0x1ca7438de0381decU, 0x3068b5844246d312U}},
      {~u64{0}, {0xae163a7a8c47568fU, 0xd86659f5f3382359U, 0x1e52b195bc2d24aU}},
  };
  for (const Vector& vector : vectors) {
    NumpyGenerator generator(vector.seed);
    for (const u64 word : vector.words) {
      EXPECT_EQ(generator.next_u64(), word) << "seed " << vector.seed;
    }
  }
}

TEST(NumpyGenerator, HalvesOfOneDrawComeLowFirst) {
  NumpyGenerator generator(0);
  EXPECT_EQ(generator.next_u32(), 0xd9c2825fU);
  EXPECT_EQ(generator.next_u32(), 0xa30febcfU);
  EXPECT_EQ(generator.next_u32(), 0x82d9d721U);
}

TEST(NumpyGenerator, ShufflesLikeNumpy) {
  EXPECT_EQ(shuffled(0, 10), (std::vector<u32>{4, 6, 2, 7, 3, 5, 9, 0, 8, 1}));
  EXPECT_EQ(shuffled(1, 17), (std::vector<u32>{1, 10, 14, 15, 7, 12, 3, 4, 5, 8, 0, 9, 2, 16, 13, 11, 6}));
  EXPECT_EQ(shuffled(34522, 10), (std::vector<u32>{5, 9, 8, 4, 0, 6, 1, 2, 7, 3}));
  EXPECT_TRUE(shuffled(5, 0).empty());
  EXPECT_EQ(shuffled(5, 1), std::vector<u32>{0});
}

// Long enough that rejection in the bounded draw happens.
TEST(NumpyGenerator, ShufflesLongArraysLikeNumpy) {
  EXPECT_EQ(fold(shuffled(7, 1000)), 0xaac1007d55bc2fb6U);
  EXPECT_EQ(fold(shuffled(34522, 100003)), 0xfdcbac23c0ca1812U);
  EXPECT_EQ(fold(shuffled(12345678901U, 65536)), 0xaeb62fdd29054ecU);
  EXPECT_EQ(fold(shuffled(3, 2000000)), 0x61bd273c58a99f8eU);
  // Seeds and sizes of a run: PCG64(seed + epoch).
  EXPECT_EQ(fold(shuffled(34521 + 1, 1000000)), 0x4e079ae077bdf38U);
  EXPECT_EQ(fold(shuffled(0 + 1, 1000000)), 0x3a86592f8cf0d830U);
  EXPECT_EQ(fold(shuffled(1 + 2, 999999)), 0x386242e304f4bb10U);
  EXPECT_EQ(fold(shuffled(6198 + 1, 524288)), 0x408219f2cacd80U);
}

}  // namespace
}  // namespace wych::data
