// Iota: an element a thread in steps of the grid. One-hot: a warp a row. Every element is written once.
#include <algorithm>

#include "kernels/cuda_rows.cuh"
#include "ops/iota.h"

namespace wych::ops {
namespace {

using kernels::blocks_for;

constexpr int kThreads = 256;
constexpr i64 kMaxBlocks = 1 << 14;

template <class T>
__global__ void __launch_bounds__(kThreads) iota_kernel(i64 count, T* y) {
  for (i64 i = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += static_cast<i64>(gridDim.x) * kThreads) {
    y[i] = static_cast<T>(i);
  }
}

template <class T>
__global__ void __launch_bounds__(kernels::kRowThreads)
    one_hot_kernel(i64 count, i64 width, const i32* __restrict__ index, T* __restrict__ y) {
  const i64 row = kernels::warp_row();
  if (row >= count) {
    return;
  }
  for (i64 e = kernels::lane_index(); e < width; e += kernels::kWarp) {
    y[row * width + e] = static_cast<T>(index[row] == e);
  }
}

}  // namespace

void Iota::launch_cuda(const ir::CudaContext& context) const {
  if (count_ == 0) {
    return;
  }
  const auto count_up = [&]<class T>(T /*type*/) {
    const i64 blocks = std::min(kMaxBlocks, ceil_div(count_, kThreads));
    iota_kernel<<<blocks_for(blocks, 1), kThreads, 0, context.stream>>>(count_, context.output(0).as<T>());
    WYCH_CUDA_LAUNCHED();
  };
  switch (dtype_) {
    case DType::kI32:
      return count_up(i32{});
    case DType::kI64:
      return count_up(i64{});
    default:
      return dispatch_float(dtype_, count_up);
  }
}

void OneHot::launch_cuda(const ir::CudaContext& context) const {
  if (context.output(0).elements() == 0) {
    return;
  }
  const i64 count = context.input(0).elements();
  dispatch_float(dtype_, [&]<class T>(T) {
    one_hot_kernel<<<blocks_for(count, kernels::kRowsPerBlock), kernels::kRowThreads, 0, context.stream>>>(
        count, width_, context.input(0).as<i32>(), context.output(0).as<T>());
    WYCH_CUDA_LAUNCHED();
  });
}

}  // namespace wych::ops
