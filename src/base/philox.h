// Counter-based random numbers (Philox4x32-10, Salmon et al. 2011): number i of a stream is a pure function
// of (seed, step, hash of a name, i), so draws do not depend on the layout, the thread count or what ran
// before. The arithmetic here is for host and device alike: only + - * / sqrt (correctly rounded, never
// contracted) and integer operations, so every backend gives the same bits. The CPU loops are in philox.cc;
// the coefficients come from scripts/fit_normal.py.
#pragma once

#include "base/types.h"

#ifdef __CUDACC__
#define WYCH_HOST_DEVICE __host__ __device__
#else
#define WYCH_HOST_DEVICE
#endif

namespace wych {

struct PhiloxBlock {
  u32 words[4];
};

// The ten rounds: four random words from a 128-bit counter and a 64-bit key.
WYCH_HOST_DEVICE constexpr PhiloxBlock philox4x32_10(PhiloxBlock counter, u32 key0, u32 key1) {
  u32 c0 = counter.words[0];
  u32 c1 = counter.words[1];
  u32 c2 = counter.words[2];
  u32 c3 = counter.words[3];
  for (int round = 0; round < 10; ++round) {
    const u64 product0 = u64{0xD2511F53U} * c0;
    const u64 product1 = u64{0xCD9E8D57U} * c2;
    c0 = static_cast<u32>(product1 >> 32U) ^ c1 ^ key0;
    c1 = static_cast<u32>(product1);
    c2 = static_cast<u32>(product0 >> 32U) ^ c3 ^ key1;
    c3 = static_cast<u32>(product0);
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  return {{c0, c1, c2, c3}};
}

// An endless sequence of random words with random access. Trivially copyable: a kernel parameter.
struct RandomStream {
  u64 key;   // from seed and hash
  u64 step;  // the upper half of the counter
};

// A bijection of 64-bit words whose every output bit depends on every input bit.
WYCH_HOST_DEVICE constexpr u64 mix_bits(u64 x) {
  x ^= x >> 32U;
  x *= 0xD6E8FEB86659FD93U;
  x ^= x >> 32U;
  x *= 0xD6E8FEB86659FD93U;
  x ^= x >> 32U;
  return x;
}

// The stream of (seed, step, hash): key = mix(seed + mix(hash + golden ratio)), step is used as it is. For
// one seed different hashes never share a key, and for one key different steps never share a counter.
WYCH_HOST_DEVICE constexpr RandomStream random_stream(u64 seed, u64 step, u64 hash) {
  return {mix_bits(seed + mix_bits(hash + 0x9E3779B97F4A7C15U)), step};
}

// Words 4 block .. 4 block + 3 of the stream: counter = (block, step).
WYCH_HOST_DEVICE constexpr PhiloxBlock random_block(RandomStream stream, u64 block) {
  const PhiloxBlock counter = {{static_cast<u32>(block), static_cast<u32>(block >> 32U),
                                static_cast<u32>(stream.step), static_cast<u32>(stream.step >> 32U)}};
  return philox4x32_10(counter, static_cast<u32>(stream.key), static_cast<u32>(stream.key >> 32U));
}

WYCH_HOST_DEVICE constexpr u32 random_word(RandomStream stream, u64 index) {
  return random_block(stream, index >> 2U).words[index & 3U];
}

// Uniform in [0, 1): a multiple of 2^-24, exact.
WYCH_HOST_DEVICE constexpr float uniform_from_word(u32 word) {
  return static_cast<float>(word >> 8U) * 0x1p-24F;
}

namespace exact {

// One rounding per operation. Device compilers contract a * b + c into one fma unless told otherwise; the
// host is built with -ffp-contract=off.
WYCH_HOST_DEVICE inline float multiply_add(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(__fmul_rn(a, b), c);
#else
  return a * b + c;
#endif
}

WYCH_HOST_DEVICE inline float divide(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

WYCH_HOST_DEVICE inline float square_root(float x) {
#ifdef __CUDA_ARCH__
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}

// Natural logarithm of a positive, finite, normal x; relative error below 3e-7 for x <= 1/2.
WYCH_HOST_DEVICE inline float log(float x) {
  const u32 bits = __builtin_bit_cast(u32, x);
  // Take x = 2^exponent m with m in [sqrt(1/2), sqrt(2)): 0x3f3504f3 is sqrt(1/2).
  const u32 shifted = bits - 0x3F3504F3U;
  const int exponent = static_cast<int>(shifted) >> 23;
  const float m = __builtin_bit_cast(float, (shifted & 0x007FFFFFU) + 0x3F3504F3U);
  // log m = 2 artanh(s), s = (m - 1) / (m + 1), |s| < 0.172.
  const float s = divide(m - 1.0F, m + 1.0F);
  const float s2 = s * s;
  float series = 0.295805067F;
  series = multiply_add(series, s2, 0.399887651F);
  series = multiply_add(series, s2, 0.666666865F);
  series = multiply_add(series, s2, 2.0F);
  return multiply_add(static_cast<float>(exponent), 0.693147182F, s * series);
}

}  // namespace exact

// The standard normal whose distribution function is (word as a signed number + 1/2) / 2^32 + 1/2: odd in
// that number, |normal| <= 6.34, never NaN, error below 5e-7 max(1, |normal|).
WYCH_HOST_DEVICE inline float normal_from_word(u32 word) {
  constexpr float kCentral = 0.4375F;  // beyond this distance from the median the tail form takes over
  const u32 sign = word & 0x80000000U;
  const u32 magnitude = sign != 0 ? ~word : word;  // below 2^31; word and ~word differ in sign alone
  // Both the distance from the median and the tail probability are exact integers before their one rounding.
  const u32 odd = 2 * magnitude + 1;
  const float distance = static_cast<float>(odd) * 0x1p-33F;  // (0, 1/2]
  float z = 0;
  if (distance <= kCentral) {
    const float r = exact::multiply_add(-distance, distance, kCentral * kCentral);
    float numerator = 85.0326233F;
    numerator = exact::multiply_add(numerator, r, 211.496262F);
    numerator = exact::multiply_add(numerator, r, 59.8142853F);
    numerator = exact::multiply_add(numerator, r, 3.5065608F);
    float denominator = 94.1361008F;
    denominator = exact::multiply_add(denominator, r, 101.290436F);
    denominator = exact::multiply_add(denominator, r, 20.5028286F);
    denominator = exact::multiply_add(denominator, r, 1.0F);
    z = distance * exact::divide(numerator, denominator);
  } else {
    const float tail = static_cast<float>(0U - odd) * 0x1p-33F;  // 1/2 - distance, at least 2^-33
    const float t = exact::square_root(-2.0F * exact::log(tail));
    float numerator = 0.461481988F;
    numerator = exact::multiply_add(numerator, t, 1.89024758F);
    numerator = exact::multiply_add(numerator, t, -0.623752058F);
    numerator = exact::multiply_add(numerator, t, -2.63583183F);
    float denominator = 0.460848719F;
    denominator = exact::multiply_add(denominator, t, 1.92342925F);
    denominator = exact::multiply_add(denominator, t, 1.0F);
    z = exact::divide(numerator, denominator);
  }
  return __builtin_bit_cast(float, __builtin_bit_cast(u32, z) | sign);
}

WYCH_HOST_DEVICE constexpr float random_uniform(RandomStream stream, u64 index) {
  return uniform_from_word(random_word(stream, index));
}

WYCH_HOST_DEVICE inline float random_normal(RandomStream stream, u64 index) {
  return normal_from_word(random_word(stream, index));
}

// out[j] = number first + j of the stream, for j in [0, count). One thread; cut long ranges freely.
void fill_uniform(RandomStream stream, u64 first, float* out, i64 count);
void fill_normal(RandomStream stream, u64 first, float* out, i64 count);

}  // namespace wych
