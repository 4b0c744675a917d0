// y = a + b; y may be a or b. 16 bytes of each a thread; where the addresses do not allow that, and behind
// the last 16, an element a thread. 12 bytes a float32 element.
#include "ir/add.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "base/check.h"
#include "device/cuda_check.h"

namespace wych::ir {
namespace {

constexpr int kThreads = 256;

__device__ __nv_bfloat16 sum(__nv_bfloat16 a, __nv_bfloat16 b) {
  return __float2bfloat16_rn(__bfloat162float(a) + __bfloat162float(b));
}
template <class T>
__device__ T sum(T a, T b) {
  return a + b;
}

template <class T>
inline constexpr int kPackWidth = 16 / static_cast<int>(sizeof(T));

template <class T>
struct alignas(16) Pack {
  T values[kPackWidth<T>];
};

// The first `packs` threads have a pack each, the others one element.
template <class T>
__global__ void __launch_bounds__(kThreads) add_kernel(i64 packs, i64 count, const T* a, const T* b, T* y) {
  const i64 i = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < packs) {
    Pack<T> left = reinterpret_cast<const Pack<T>*>(a)[i];
    const Pack<T> right = reinterpret_cast<const Pack<T>*>(b)[i];
#pragma unroll
    for (int j = 0; j < kPackWidth<T>; ++j) {
      left.values[j] = sum(left.values[j], right.values[j]);
    }
    reinterpret_cast<Pack<T>*>(y)[i] = left;
    return;
  }
  const i64 element = packs * kPackWidth<T> + i - packs;
  if (element < count) {
    y[element] = sum(a[element], b[element]);
  }
}

bool is_aligned(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; }

template <class T>
void launch(const CudaContext& context) {
  const i64 count = context.output(0).elements();
  if (count == 0) {
    return;
  }
  const auto* a = reinterpret_cast<const T*>(context.input(0).data);
  const auto* b = reinterpret_cast<const T*>(context.input(1).data);
  auto* y = reinterpret_cast<T*>(context.output(0).data);
  const i64 packs = is_aligned(a) && is_aligned(b) && is_aligned(y) ? count / kPackWidth<T> : 0;
  const i64 blocks = ceil_div(packs + count - packs * kPackWidth<T>, i64{kThreads});
  WYCH_CHECK(blocks <= 0x7fffffff, "{} blocks", blocks);
  add_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, context.stream>>>(packs, count, a, b, y);
  WYCH_CUDA_LAUNCHED();
}

}  // namespace

void Add::launch_cuda(const CudaContext& context) const {
  switch (context.output(0).type->dtype) {
    case DType::kF32:
      return launch<float>(context);
    case DType::kF64:
      return launch<double>(context);
    case DType::kBF16:
      return launch<__nv_bfloat16>(context);
    case DType::kI32:
      return launch<i32>(context);
    default:
      return launch<i64>(context);
  }
}

}  // namespace wych::ir
