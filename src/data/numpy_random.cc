// The constants are those of the PCG paper and of numpy's SeedSequence; the order of operations is the
// contract, so nothing here may be "simplified" without the vectors of numpy_random_test.cc.
#include "data/numpy_random.h"

#include <array>
#include <bit>
#include <utility>

#include "base/check.h"

namespace wych::data {
namespace {

// SeedSequence(seed).generate_state(4, uint64) for a seed of at most two 32-bit words: hash the words into a
// pool of four, mix every word into every other, then hash the pool out again.
class SeedSequence {
 public:
  explicit SeedSequence(u64 seed) {
    const std::array<u32, 2> entropy = {static_cast<u32>(seed), static_cast<u32>(seed >> 32U)};
    u32 constant = 0x43b0d7e5U;
    const auto hash = [&constant](u32 value) {
      value ^= constant;
      constant *= 0x931e8875U;
      value *= constant;
      return value ^ (value >> 16U);
    };
    for (std::size_t i = 0; i < pool_.size(); ++i) {
      pool_[i] = hash(i < entropy.size() ? entropy[i] : 0U);
    }
    for (std::size_t source = 0; source < pool_.size(); ++source) {
      for (std::size_t target = 0; target < pool_.size(); ++target) {
        if (source != target) {
          const u32 mixed = pool_[target] * 0xca01f9ddU - hash(pool_[source]) * 0x4973f715U;
          pool_[target] = mixed ^ (mixed >> 16U);
        }
      }
    }
  }

  // Four 64-bit words, each of two 32-bit ones, the low half first.
  [[nodiscard]] std::array<u64, 4> words() const {
    std::array<u64, 4> result{};
    u32 constant = 0x8b51f9ddU;
    for (std::size_t i = 0; i < 2 * result.size(); ++i) {
      u32 value = pool_[i % pool_.size()] ^ constant;
      constant *= 0x58f38dedU;
      value *= constant;
      value ^= value >> 16U;
      result[i / 2] |= static_cast<u64>(value) << (32U * (i % 2));
    }
    return result;
  }

 private:
  std::array<u32, 4> pool_{};
};

}  // namespace

NumpyGenerator::NumpyGenerator(u64 seed) {
  const std::array<u64, 4> words = SeedSequence(seed).words();
  const u128 initial_state = (static_cast<u128>(words[0]) << 64U) | words[1];
  const u128 stream = (static_cast<u128>(words[2]) << 64U) | words[3];
  increment_ = (stream << 1U) | 1U;
  next_u64();
  state_ += initial_state;
  next_u64();
}

u64 NumpyGenerator::next_u64() {
  constexpr u128 kMultiplier = (static_cast<u128>(0x2360ED051FC65DA4U) << 64U) | 0x4385DF649FCCF645U;
  state_ = state_ * kMultiplier + increment_;
  const u64 folded = static_cast<u64>(state_ >> 64U) ^ static_cast<u64>(state_);
  return std::rotr(folded, static_cast<int>(state_ >> 122U));
}

u32 NumpyGenerator::next_u32() {
  if (has_half_) {
    has_half_ = false;
    return half_;
  }
  const u64 word = next_u64();
  has_half_ = true;
  half_ = static_cast<u32>(word >> 32U);
  return static_cast<u32>(word);
}

u32 NumpyGenerator::bounded(u32 max) {
  const u32 mask = ~u32{0} >> static_cast<u32>(std::countl_zero(max));
  u32 value = next_u32() & mask;
  while (value > max) {
    value = next_u32() & mask;
  }
  return value;
}

void NumpyGenerator::shuffle(std::span<u32> values) {
  WYCH_CHECK(values.size() < (std::size_t{1} << 32U), "{} values to shuffle", values.size());
  for (std::size_t i = values.size(); i-- > 1;) {
    std::swap(values[i], values[bounded(static_cast<u32>(i))]);
  }
}

}  // namespace wych::data
