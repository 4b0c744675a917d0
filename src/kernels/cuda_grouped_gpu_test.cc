// The Hopper kernel against the generic float32 one on the same rounded inputs: uneven experts, some empty,
// sizes that are no multiple of a tile; pad rows, rows past the end, accumulation, repetition.
#include "kernels/cuda_grouped_sm90.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/dtype.h"
#include "device/cuda.h"
#include "kernels/cuda_gemm.h"
#include "kernels/cuda_random.h"

namespace wych::kernels {
namespace {

constexpr i64 kAlignment = 128;

class Grouped : public testing::TestWithParam<std::tuple<i64, i64, std::vector<i64>>> {
 protected:
  void SetUp() override {
    if (device::num_cuda_devices() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
    device_ = device::CudaDevice::open().value();
    if (device_->target().architecture != 90) {
      GTEST_SKIP() << "needs a Hopper device";
    }
    const auto& [n, k, counts] = GetParam();
    offsets_ = {0};
    for (const i64 count : counts) {
      offsets_.push_back(offsets_.back() + static_cast<i32>(round_up(count, kAlignment)));
    }
    shape_ = {
        .groups = static_cast<i64>(counts.size()), .rows = offsets_.back() + 3 * kAlignment, .n = n, .k = k};
    ASSERT_TRUE(grouped_sm90_supports(device_->target(), shape_));
    arena_ = device::CudaArena::create(*device_, "test", i64{1} << 30U).value();
  }

  template <class T>
  T* buffer(i64 count) {
    auto* data = reinterpret_cast<T*>(arena_.data() + used_);
    used_ = round_up(used_ + count * static_cast<i64>(sizeof(T)), i64{1024});
    EXPECT_LE(used_, arena_.bytes());
    return data;
  }
  template <class T>
  std::vector<T> read(const T* data, i64 count) {
    std::vector<T> values(static_cast<std::size_t>(count));
    device_->copy_to_host(reinterpret_cast<std::byte*>(values.data()),
                          reinterpret_cast<const std::byte*>(data), count * static_cast<i64>(sizeof(T)));
    device_->synchronize();
    return values;
  }
  template <class T>
  void write(T* data, const std::vector<T>& values) {
    device_->copy_to_device(reinterpret_cast<std::byte*>(data),
                            reinterpret_cast<const std::byte*>(values.data()),
                            static_cast<i64>(values.size() * sizeof(T)));
    device_->synchronize();
  }
  // Random bfloat16 and the same values as float32.
  struct Pair {
    __nv_bfloat16* half;
    float* single;
  };
  // With `rows`, pad rows of the segments become zero and rows past the last one NaN.
  Pair random(i64 count, u64 seed, bool rows, i64 width) {
    Pair pair{buffer<__nv_bfloat16>(count), buffer<float>(count)};
    cuda_fill_normal(device_->stream(), seed, 1.0F, count, pair.half);
    std::vector<bf16> half = read(reinterpret_cast<bf16*>(pair.half), count);
    if (rows) {
      const std::vector<i64>& counts = std::get<2>(GetParam());
      for (std::size_t e = 0; e < counts.size(); ++e) {
        for (i64 i = (offsets_[e] + counts[e]) * width; i < offsets_[e + 1] * width; ++i) {
          half[static_cast<std::size_t>(i)] = bf16(0.0F);
        }
      }
      for (i64 i = offsets_.back() * width; i < count; ++i) {
        half[static_cast<std::size_t>(i)] = bf16(std::nanf(""));
      }
    }
    std::vector<float> single;
    for (const bf16 value : half) {
      single.push_back(static_cast<float>(value));
    }
    write(reinterpret_cast<bf16*>(pair.half), half);
    write(pair.single, single);
    return pair;
  }
  // Products of normals: sums of `terms` terms have deviation sqrt(terms); bfloat16 keeps 8 bits.
  void expect_close(const __nv_bfloat16* actual, const float* expected, i64 count, i64 terms) {
    const std::vector<bf16> a = read(reinterpret_cast<const bf16*>(actual), count);
    const std::vector<float> b = read(expected, count);
    const double tolerance = std::sqrt(static_cast<double>(terms)) * 1e-3;
    i64 wrong = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double difference =
          std::abs(static_cast<double>(static_cast<float>(a[i])) - static_cast<double>(b[i]));
      wrong += difference <= std::abs(static_cast<double>(b[i])) * 0x1p-8 + tolerance ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0) << "of " << count;
  }

  std::unique_ptr<device::CudaDevice> device_;
  device::CudaArena arena_;
  i64 used_ = 0;
  GroupedShape shape_;
  std::vector<i32> offsets_;
};

TEST_P(Grouped, ForwardAndDx) {
  i32* offsets = buffer<i32>(std::ssize(offsets_));
  write(offsets, offsets_);
  const Pair x = random(shape_.rows * shape_.k, 1, true, shape_.k);
  const Pair w = random(shape_.groups * shape_.n * shape_.k, 2, false, 0);
  const Pair dy = random(shape_.rows * shape_.n, 3, true, shape_.n);
  auto* y = buffer<__nv_bfloat16>(shape_.rows * shape_.n);
  auto* dx = buffer<__nv_bfloat16>(shape_.rows * shape_.k);
  auto* y_expected = buffer<float>(shape_.rows * shape_.n);
  auto* dx_expected = buffer<float>(shape_.rows * shape_.k);
  device_->fill(reinterpret_cast<std::byte*>(y), 0xff, shape_.rows * shape_.n * 2);
  device_->fill(reinterpret_cast<std::byte*>(dx), 0xff, shape_.rows * shape_.k * 2);
  for (int repeat = 0; repeat < 2; ++repeat) {
    grouped_sm90_forward(device_->stream(), device_->target(), shape_, offsets, x.half, w.half, y);
    grouped_sm90_dx(device_->stream(), device_->target(), shape_, offsets, dy.half, w.half, dx);
  }
  cuda_grouped_gemm_f32(device_->stream(), true, shape_.groups, offsets, shape_.rows, shape_.n, shape_.k,
                        x.single, w.single, y_expected);
  cuda_grouped_gemm_f32(device_->stream(), false, shape_.groups, offsets, shape_.rows, shape_.k, shape_.n,
                        dy.single, w.single, dx_expected);
  expect_close(y, y_expected, offsets_.back() * shape_.n, shape_.k);
  expect_close(dx, dx_expected, offsets_.back() * shape_.k, shape_.n);
  // Rows past the last segment are as they were.
  for (const bf16 value : read(reinterpret_cast<bf16*>(y) + offsets_.back() * shape_.n,
                               (shape_.rows - offsets_.back()) * shape_.n)) {
    ASSERT_TRUE(std::isnan(static_cast<float>(value)));
  }
}

TEST_P(Grouped, WeightGradient) {
  i32* offsets = buffer<i32>(std::ssize(offsets_));
  write(offsets, offsets_);
  const Pair x = random(shape_.rows * shape_.k, 4, true, shape_.k);
  const Pair dy = random(shape_.rows * shape_.n, 5, true, shape_.n);
  const i64 count = shape_.groups * shape_.n * shape_.k;
  float* dw = buffer<float>(count);
  float* expected = buffer<float>(count);
  device_->fill(reinterpret_cast<std::byte*>(dw), 0xff, count * 4);
  grouped_sm90_dw(device_->stream(), device_->target(), shape_, offsets, dy.half, x.half, false, dw);
  cuda_grouped_dw_f32(device_->stream(), shape_.groups, offsets, shape_.n, shape_.k, dy.single, x.single,
                      false, expected);
  const std::vector<float> first = read(dw, count);
  const std::vector<float> truth = read(expected, count);
  const double tolerance = 1e-5 * std::sqrt(static_cast<double>(shape_.rows)) + 1e-5;
  i64 wrong = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    wrong += std::abs(first[i] - truth[i]) <= tolerance * 4 ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0) << "of " << count;
  grouped_sm90_dw(device_->stream(), device_->target(), shape_, offsets, dy.half, x.half, true, dw);
  const std::vector<float> twice = read(dw, count);
  wrong = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    wrong += twice[i] == 2 * first[i] ? 0 : 1;  // the same sums to the bit, and doubling is exact
  }
  EXPECT_EQ(wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Grouped,
    testing::Values(std::tuple<i64, i64, std::vector<i64>>{256, 64, {128}},
                    std::tuple<i64, i64, std::vector<i64>>{64, 64, {1, 0, 300, 0}},
                    std::tuple<i64, i64, std::vector<i64>>{512, 320, {0, 517, 128, 0, 1, 700}},
                    std::tuple<i64, i64, std::vector<i64>>{448, 576, std::vector<i64>(37, 129)},
                    std::tuple<i64, i64, std::vector<i64>>{1024, 512, {5000, 0, 3, 2500, 77, 1024, 1, 900}}));

}  // namespace
}  // namespace wych::kernels
