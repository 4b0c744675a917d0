// Multiply-adds in registers, with as many independent chains as two units need, and a copy of a large array.
#include "kernels/ceilings.h"

#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>

#include "base/types.h"

namespace wych::kernels {
namespace {

constexpr int kRounds = 5;
constexpr i64 kIterations = 2'000'000;
constexpr int kChains = 12;  // latency 4, two units: eight are enough

// Both return a value that depends on every chain, so that none is left out.
float chains_avx2(i64 iterations, float start) {
  __m256 sum[kChains];
  const __m256 factor = _mm256_set1_ps(start);
#pragma GCC unroll 12
  for (int chain = 0; chain < kChains; ++chain) {
    sum[chain] = _mm256_set1_ps(static_cast<float>(chain));  // unlike, or one would do for all
  }
  for (i64 i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (int chain = 0; chain < kChains; ++chain) {
      sum[chain] = _mm256_fmadd_ps(sum[chain], factor, factor);
    }
  }
  float result = 0;
  for (const __m256& chain : sum) {
    result += _mm256_cvtss_f32(chain);
  }
  return result;
}

__attribute__((target("avx512f"))) float chains_avx512(i64 iterations, float start) {
  __m512 sum[kChains];
  const __m512 factor = _mm512_set1_ps(start);
#pragma GCC unroll 12
  for (int chain = 0; chain < kChains; ++chain) {
    sum[chain] = _mm512_set1_ps(static_cast<float>(chain));  // unlike, or one would do for all
  }
  for (i64 i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (int chain = 0; chain < kChains; ++chain) {
      sum[chain] = _mm512_fmadd_ps(sum[chain], factor, factor);
    }
  }
  float result = 0;
  for (const __m512& chain : sum) {
    result += _mm512_cvtss_f32(chain);
  }
  return result;
}

// The shortest of several rounds, in seconds.
template <class Work>
double shortest(const Work& work) {
  double best = 1e30;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    work();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

double measure_flops(ThreadPool& pool) {
  const bool wide = __builtin_cpu_supports("avx512f") != 0;
  const i64 threads = pool.num_threads();
  volatile float sink = 0.5F;
  const double seconds = shortest([&] {
    pool.parallel_for(threads, [&](i64) {
      const float result = wide ? chains_avx512(kIterations, 0.5F) : chains_avx2(kIterations, 0.5F);
      if (result == 0) {  // never; the compiler cannot know
        sink = result;
      }
    });
  });
  const double lanes = wide ? 16 : 8;
  return 2 * lanes * kChains * static_cast<double>(kIterations * threads) / seconds;
}

double measure_bytes(ThreadPool& pool) {
  constexpr i64 kBytes = i64{128} << 20U;
  constexpr i64 kChunk = i64{1} << 20U;
  const auto from = std::make_unique<std::byte[]>(kBytes);
  const auto to = std::make_unique<std::byte[]>(kBytes);
  std::fill_n(from.get(), kBytes, std::byte{1});
  const double seconds = shortest([&] {
    pool.parallel_chunks(kBytes, kChunk, [&](i64 begin, i64 end) {
      std::memcpy(to.get() + begin, from.get() + begin, static_cast<std::size_t>(end - begin));
    });
  });
  return 2.0 * static_cast<double>(kBytes) / seconds;
}

}  // namespace

Ceilings measure_ceilings(ThreadPool& pool) { return {measure_flops(pool), measure_bytes(pool)}; }

}  // namespace wych::kernels
