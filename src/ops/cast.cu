// An element a thread in steps of the grid; as many bytes as the two types have.
#include <algorithm>
#include <type_traits>

#include "kernels/cuda_launch.cuh"
#include "ops/cast.h"

namespace wych::ops {
namespace {

constexpr int kThreads = 256;
constexpr i64 kMaxBlocks = 1 << 14;

// bf16 as device code knows it; the same 16 bits.
template <class T>
using Device = std::conditional_t<std::is_same_v<T, bf16>, __nv_bfloat16, T>;

template <class F>
void dispatch(DType dtype, F&& function) {
  switch (dtype) {
    case DType::kF32:
      return function(float{});
    case DType::kF64:
      return function(double{});
    case DType::kBF16:
      return function(bf16{});
    case DType::kI32:
      return function(i32{});
    default:
      return function(i64{});
  }
}

// bf16 meets the other types as the float it stands for.
template <class To, class From>
__device__ To convert(From value) {
  if constexpr (std::is_same_v<From, To>) {
    return value;
  } else if constexpr (std::is_same_v<From, __nv_bfloat16>) {
    return static_cast<To>(__bfloat162float(value));
  } else if constexpr (std::is_same_v<To, __nv_bfloat16>) {
    return __float2bfloat16_rn(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

template <class To, class From>
__global__ void __launch_bounds__(kThreads)
    cast_kernel(i64 count, const From* __restrict__ x, To* __restrict__ y) {
  for (i64 i = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += static_cast<i64>(gridDim.x) * kThreads) {
    y[i] = convert<To>(x[i]);
  }
}

template <class To, class From>
void launch(const ir::CudaContext& context) {
  const i64 count = context.output(0).elements();
  const i64 blocks = std::min(kMaxBlocks, ceil_div(count, kThreads));
  const auto* x = reinterpret_cast<const Device<From>*>(context.input(0).as<From>());
  auto* y = reinterpret_cast<Device<To>*>(context.output(0).as<To>());
  cast_kernel<<<kernels::blocks_for(blocks, 1), kThreads, 0, context.stream>>>(count, x, y);
  WYCH_CUDA_LAUNCHED();
}

}  // namespace

void Cast::launch_cuda(const ir::CudaContext& context) const {
  if (context.output(0).elements() == 0) {
    return;
  }
  dispatch(context.input(0).type->dtype,
           [&]<class From>(From) { dispatch(to_, [&]<class To>(To) { launch<To, From>(context); }); });
}

}  // namespace wych::ops
