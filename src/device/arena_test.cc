// Arena: alignment, bounds, poison, ownership.
#include "device/arena.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

namespace wych::device {
namespace {

template <class T>
T read_at(const Arena& arena, i64 offset) {
  T value;
  std::memcpy(&value, arena.slice(offset, sizeof(T)).data(), sizeof(T));
  return value;
}

TEST(Arena, IsAlignedAndZeroAtAnySize) {
  for (const i64 bytes : {i64{1}, i64{64}, i64{4097}, i64{2} << 20, (i64{6} << 20) + 1}) {
    const Arena arena = Arena::create("weights", bytes).value();
    EXPECT_EQ(arena.bytes(), bytes);
    EXPECT_EQ(arena.name(), "weights");
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.data()) % kArenaAlignment, 0U);
    EXPECT_EQ(arena.data()[0], std::byte{0});
    arena.data()[bytes - 1] = std::byte{1};
    EXPECT_EQ(arena.slice(bytes - 1, 1)[0], std::byte{1});
  }
}

TEST(Arena, PoisonReadsAsNanInEveryFloatTypeAndStaysInItsRange) {
  const Arena arena = Arena::create("scratch", 256).value();
  arena.poison(64, 64);
  EXPECT_TRUE(std::isnan(read_at<float>(arena, 64)));
  EXPECT_TRUE(std::isnan(read_at<double>(arena, 120)));
  EXPECT_EQ(read_at<u16>(arena, 100) & 0x7fc0, 0x7fc0);  // a quiet NaN of bfloat16
  EXPECT_EQ(read_at<i32>(arena, 100), -1);
  EXPECT_EQ(read_at<u8>(arena, 63), 0);
  EXPECT_EQ(read_at<u8>(arena, 128), 0);
  arena.poison();
  EXPECT_EQ(read_at<u8>(arena, 0), 0xff);
  EXPECT_EQ(read_at<u8>(arena, 255), 0xff);
}

TEST(Arena, MovesWithoutCopyingItsMemory) {
  Arena first = Arena::create("state", 128).value();
  std::byte* const data = first.data();
  Arena second;
  second = std::move(first);
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(second.name(), "state");
  const Arena third(std::move(second));
  EXPECT_EQ(third.data(), data);
  EXPECT_EQ(third.bytes(), 128);
}

TEST(Arena, EmptyOneHasAnEmptySlice) {
  const Arena arena = Arena::create("io", 0).value();
  EXPECT_TRUE(arena.slice(0, 0).empty());
  arena.poison();
}

TEST(Arena, ImpossibleSizeIsAMemoryError) {
  const Expected<Arena> arena = Arena::create("stash", std::numeric_limits<i64>::max() - (i64{8} << 20));
  ASSERT_FALSE(arena.has_value());
  EXPECT_EQ(arena.error().kind, ErrorKind::kMemory);
  EXPECT_NE(arena.error().text().find("arena stash: cannot get 9223372036846"), std::string::npos)
      << arena.error().text();
}

TEST(ArenaDeathTest, SliceOutsideIsRefused) {
  const Arena arena = Arena::create("scratch", 128).value();
  EXPECT_DEATH((void)arena.slice(65, 64), "outside arena scratch");
  EXPECT_DEATH((void)arena.slice(-1, 1), "outside arena scratch");
  EXPECT_DEATH((void)arena.slice(1, std::numeric_limits<i64>::max()), "outside arena scratch");
}

}  // namespace
}  // namespace wych::device
