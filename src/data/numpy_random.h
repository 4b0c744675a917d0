// numpy's default generator, reproduced bit for bit: SeedSequence -> PCG64 (setseq 128, XSL-RR) ->
// Generator.shuffle. The order of training data is defined by it (sampler.h), so a run here reads the same
// instances at the same step as one in a framework that shuffles with numpy.
#pragma once

#include <span>

#include "base/types.h"

namespace wych::data {

// numpy.random.PCG64(seed) behind numpy.random.Generator.
class NumpyGenerator {
 public:
  // `seed` is expanded by SeedSequence(seed), as numpy does with a non-negative integer below 2^64.
  explicit NumpyGenerator(u64 seed);

  // The next 64 random bits.
  u64 next_u64();
  // The next 32: the low half of a 64-bit draw first, its high half at the next call.
  u32 next_u32();

  // Generator.shuffle(values) of a one-dimensional array; fewer than 2^32 values.
  void shuffle(std::span<u32> values);

 private:
  // Uniform in [0, max], max >= 1: as many low bits as max has, drawn again while above it.
  u32 bounded(u32 max);

  __extension__ using u128 = unsigned __int128;
  u128 state_ = 0;
  u128 increment_ = 0;
  bool has_half_ = false;
  u32 half_ = 0;
};

}  // namespace wych::data
