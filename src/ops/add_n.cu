// Terms are added in order, up to kTerms of them a launch: one read of each, one write a launch.
#include <algorithm>

#include "kernels/cuda_launch.cuh"
#include "ops/add_n.h"

namespace wych::ops {
namespace {

constexpr int kThreads = 256;
constexpr i64 kMaxBlocks = 1 << 14;
constexpr int kTerms = 16;

template <class T>
struct Terms {
  const T* data[kTerms];
  int count;
};

// y = (continued ? y : 0) + terms, in order; y may be the first term.
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_n_kernel(i64 count, const Terms<T> terms, bool continued, T* y) {
  for (i64 i = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += static_cast<i64>(gridDim.x) * kThreads) {
    T sum = continued ? y[i] : terms.data[0][i];
    for (int term = continued ? 0 : 1; term < terms.count; ++term) {
      sum += terms.data[term][i];
    }
    y[i] = sum;
  }
}

template <class T>
void launch(const ir::CudaContext& context) {
  const i64 count = context.output(0).elements();
  if (count == 0) {
    return;
  }
  const i64 blocks = std::min(kMaxBlocks, ceil_div(count, kThreads));
  for (std::size_t first = 0; first < context.inputs.size(); first += kTerms) {
    Terms<T> terms{};
    while (terms.count < kTerms && first + static_cast<std::size_t>(terms.count) < context.inputs.size()) {
      terms.data[terms.count] = context.inputs[first + static_cast<std::size_t>(terms.count)].as<T>();
      ++terms.count;
    }
    add_n_kernel<<<kernels::blocks_for(blocks, 1), kThreads, 0, context.stream>>>(count, terms, first > 0,
                                                                                  context.output(0).as<T>());
    WYCH_CUDA_LAUNCHED();
  }
}

}  // namespace

void AddN::launch_cuda(const ir::CudaContext& context) const {
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

}  // namespace wych::ops
