// y = a + b, an element a thread in steps of the grid; y may be a or b. 12 bytes a float32 element.
#include "ir/add.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "device/cuda_check.h"

namespace wych::ir {
namespace {

constexpr int kThreads = 256;
constexpr i64 kMaxBlocks = 1 << 16;

template <class T>
__global__ void __launch_bounds__(kThreads) add_kernel(i64 count, const T* a, const T* b, T* y) {
  for (i64 i = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += static_cast<i64>(gridDim.x) * kThreads) {
    y[i] = a[i] + b[i];
  }
}

template <class T>
void launch(const CudaContext& context) {
  const i64 count = context.output(0).elements();
  if (count == 0) {
    return;
  }
  const auto blocks = static_cast<unsigned>(std::min(kMaxBlocks, ceil_div(count, kThreads)));
  add_kernel<<<blocks, kThreads, 0, context.stream>>>(count, context.input(0).as<T>(),
                                                      context.input(1).as<T>(), context.output(0).as<T>());
  WYCH_CUDA_LAUNCHED();
}

}  // namespace

void Add::launch_cuda(const CudaContext& context) const {
  switch (context.output(0).type->dtype) {
    case DType::kF32:
      return launch<float>(context);
    case DType::kF64:
      return launch<double>(context);
    case DType::kI32:
      return launch<i32>(context);
    default:
      return launch<i64>(context);
  }
}

}  // namespace wych::ir
