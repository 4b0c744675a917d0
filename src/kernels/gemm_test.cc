#include "kernels/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/gemm_dispatch.h"

namespace wych::kernels {
namespace {

constexpr double kGuard = 77.0;  // between the columns of C

template <class T>
std::vector<T> numbers(i64 count, u32 seed) {
  std::vector<T> values;
  u32 state = seed;
  for (i64 i = 0; i < count; ++i) {
    state = state * 1664525U + 1013904223U;
    values.push_back(static_cast<T>(static_cast<double>(state >> 8U) / (1 << 23) - 1.0));
  }
  return values;
}

// One product with leading dimensions wider than the matrices.
template <class T>
struct Product {
  Product(bool transpose_a, bool transpose_b, i64 rows, i64 columns, i64 depth)
      : trans_a(transpose_a), trans_b(transpose_b), m(rows), n(columns), k(depth) {
    a = numbers<T>((trans_a ? k : m) * lda(), 1);
    b = numbers<T>((trans_b ? n : k) * ldb(), 2);
    c = numbers<T>(m * ldc(), 3);
    for (i64 i = 0; i < m; ++i) {
      std::fill(c.begin() + i * ldc() + n, c.begin() + (i + 1) * ldc(), static_cast<T>(kGuard));
    }
  }
  [[nodiscard]] i64 lda() const { return (trans_a ? m : k) + 3; }
  [[nodiscard]] i64 ldb() const { return (trans_b ? k : n) + 1; }
  [[nodiscard]] i64 ldc() const { return n + 2; }
  [[nodiscard]] GemmProblem<T> problem(bool accumulate, std::vector<T>& out) const {
    return {trans_a, trans_b, m, n, k, a.data(), lda(), b.data(), ldb(), accumulate, out.data(), ldc()};
  }
  [[nodiscard]] std::vector<T> serial(bool accumulate) const {
    std::vector<T> out = c;
    gemm_serial(trans_a, trans_b, m, n, k, a.data(), lda(), b.data(), ldb(), accumulate, out.data(), ldc());
    return out;
  }
  [[nodiscard]] std::vector<T> parallel(ThreadPool& pool, bool accumulate) const {
    std::vector<T> out = c;
    gemm(pool, trans_a, trans_b, m, n, k, a.data(), lda(), b.data(), ldb(), accumulate, out.data(), ldc());
    return out;
  }

  bool trans_a;
  bool trans_b;
  i64 m;
  i64 n;
  i64 k;
  std::vector<T> a;
  std::vector<T> b;
  std::vector<T> c;
};

template <class T>
void expect_equal_bits(const std::vector<T>& a, const std::vector<T>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(T)), 0);
}

template <class T>
void expect_right(const Product<T>& product, const std::vector<T>& out, bool accumulate) {
  // sqrt(k) independent roundings of partial sums, which are themselves of the size sqrt(k).
  const double tolerance =
      static_cast<double>(std::numeric_limits<T>::epsilon()) * static_cast<double>(product.k + 4);
  for (i64 i = 0; i < product.m; ++i) {
    for (i64 j = 0; j < product.ldc(); ++j) {
      const auto at = static_cast<std::size_t>(i * product.ldc() + j);
      double expected = kGuard;
      if (j < product.n) {
        expected = accumulate ? static_cast<double>(product.c[at]) : 0.0;
        for (i64 p = 0; p < product.k; ++p) {
          const i64 in_a = product.trans_a ? p * product.lda() + i : i * product.lda() + p;
          const i64 in_b = product.trans_b ? j * product.ldb() + p : p * product.ldb() + j;
          expected += static_cast<double>(product.a[static_cast<std::size_t>(in_a)]) *
                      static_cast<double>(product.b[static_cast<std::size_t>(in_b)]);
        }
      }
      ASSERT_NEAR(static_cast<double>(out[at]), expected, tolerance)
          << product.trans_a << product.trans_b << " " << product.m << "x" << product.n << "x" << product.k
          << " at " << i << ", " << j;
    }
  }
}

template <class T>
class GemmOf : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(GemmOf, Scalars);

// Calls product(p) for odd and round shapes and all transposes.
template <class T, class F>
void for_each_product(const F& visit) {
  const i64 shapes[][3] = {{1, 1, 1},   {7, 5, 3},   {6, 64, 128}, {13, 67, 129},
                           {2, 131, 9}, {31, 1, 17}, {48, 96, 61}, {5, 33, 300}};
  for (const auto& [m, n, k] : shapes) {
    for (const bool trans_a : {false, true}) {
      for (const bool trans_b : {false, true}) {
        visit(Product<T>(trans_a, trans_b, m, n, k));
      }
    }
  }
}

TYPED_TEST(GemmOf, MatchesPlainLoops) {
  for_each_product<TypeParam>([](const Product<TypeParam>& product) {
    for (const bool accumulate : {false, true}) {
      expect_right(product, product.serial(accumulate), accumulate);
    }
  });
}

TYPED_TEST(GemmOf, BaselineAndWidestKernelsGiveTheSameBits) {
  if (!__builtin_cpu_supports("avx512f")) {
    GTEST_SKIP() << "needs AVX-512";
  }
  for_each_product<TypeParam>([](const Product<TypeParam>& product) {
    std::vector<TypeParam> narrow = product.c;
    std::vector<TypeParam> wide = product.c;
    gemm_baseline(product.problem(true, narrow));
    gemm_avx512(product.problem(true, wide));
    expect_equal_bits(narrow, wide);
    expect_right(product, narrow, true);
  });
}

TYPED_TEST(GemmOf, TilesAndThreadsChangeNoBit) {
  for (const auto& [m, n, k] : {std::array<i64, 3>{401, 259, 70}, {97, 131, 1030}}) {
    for (const bool trans_a : {false, true}) {
      const Product<TypeParam> product(trans_a, true, m, n, k);
      const std::vector<TypeParam> expected = product.serial(false);
      for (const int num_threads : {1, 2, 3}) {
        ThreadPool pool(num_threads);
        expect_equal_bits(product.parallel(pool, false), expected);
      }
    }
  }
}

TYPED_TEST(GemmOf, ARowDoesNotDependOnTheNumberOfRows) {
  const Product<TypeParam> product(false, true, 37, 41, 150);
  const std::vector<TypeParam> expected = product.serial(false);
  std::vector<TypeParam> row(static_cast<std::size_t>(product.n));
  for (i64 i = 0; i < product.m; ++i) {
    gemm_serial(false, true, 1, product.n, product.k, product.a.data() + i * product.lda(), product.lda(),
                product.b.data(), product.ldb(), false, row.data(), product.n);
    const auto first = expected.begin() + i * product.ldc();
    expect_equal_bits(row, std::vector<TypeParam>(first, first + product.n));
  }
}

TYPED_TEST(GemmOf, WithoutAccumulationCIsNotRead) {
  Product<TypeParam> product(false, false, 9, 70, 140);
  const std::vector<TypeParam> expected = product.serial(false);
  for (i64 i = 0; i < product.m; ++i) {
    std::fill_n(product.c.begin() + i * product.ldc(), product.n,
                std::numeric_limits<TypeParam>::quiet_NaN());
  }
  expect_equal_bits(product.serial(false), expected);
}

TYPED_TEST(GemmOf, EmptyExtentsAreFine) {
  ThreadPool pool(2);
  const Product<TypeParam> no_depth(false, true, 5, 7, 0);
  expect_right(no_depth, no_depth.parallel(pool, true), true);
  expect_right(no_depth, no_depth.parallel(pool, false), false);
  const Product<TypeParam> no_rows(false, true, 0, 7, 3);
  EXPECT_TRUE(no_rows.parallel(pool, false).empty());
  const Product<TypeParam> no_columns(true, false, 3, 0, 3);
  expect_right(no_columns, no_columns.parallel(pool, false), false);
}

TYPED_TEST(GemmOf, NanAndInfinityPropagate) {
  Product<TypeParam> product(false, false, 8, 9, 10);
  product.a[static_cast<std::size_t>(2 * product.lda() + 4)] = std::numeric_limits<TypeParam>::quiet_NaN();
  product.a[static_cast<std::size_t>(5 * product.lda() + 4)] = std::numeric_limits<TypeParam>::infinity();
  const std::vector<TypeParam> out = product.serial(false);
  for (i64 i = 0; i < product.m; ++i) {
    for (i64 j = 0; j < product.n; ++j) {
      const TypeParam value = out[static_cast<std::size_t>(i * product.ldc() + j)];
      EXPECT_EQ(std::isnan(value), i == 2) << i << ", " << j;
      EXPECT_EQ(std::isinf(value), i == 5) << i << ", " << j;
    }
  }
}

}  // namespace
}  // namespace wych::kernels
