// Forward: a row to a warp, or to a block where it is long, and kept in registers: read once. Bytes of
// bfloat16: 4 an element, with the addition 8. Backward: a row or two at a time to a block, which also sums
// its rows' part of the weight's gradient; a second launch adds the blocks' parts, in order. 6 bytes an
// element, 8 with dpassing.
#include "kernels/cuda_columns.cuh"
#include "kernels/cuda_rows.cuh"
#include "ops/rms_norm.h"

namespace wych::ops {
namespace {

using kernels::blocks_for;
using kernels::device_cast;
using kernels::kPackWidth;
using kernels::kWarp;
using kernels::load_float;
using kernels::Pack;
using kernels::rounded;

constexpr int kThreads = 256;
constexpr int kKept = 8;  // packs of a row that a thread keeps; what is beyond is read again

// Sum over the kRowThreads threads of a row.
template <int kRowThreads>
__device__ float row_sum(float value) {
  if constexpr (kRowThreads == kWarp) {
    return kernels::warp_sum(value);
  } else {
    static_assert(kRowThreads == kThreads);
    __shared__ float scratch[kThreads / kWarp];
    return kernels::block_sum<kThreads>(value, scratch);
  }
}

template <class T>
struct NormParams {
  i64 rows;
  int width;
  float eps;
  const T* a;
  const T* b;  // null: x is a
  const float* weight;
  T* x;  // may be a or b; with b alone
  T* y;  // may be a, or b with b
  float* rstd;
};

template <class T, int kWidth>
__device__ Pack<T, kWidth> sum_of(const Pack<T, kWidth>& a, const Pack<T, kWidth>& b) {
  float sums[kWidth];
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    sums[j] = load_float(&a.values[j]) + load_float(&b.values[j]);
  }
  return rounded<T, kWidth>(sums);
}

template <class T, int kWidth>
__device__ float squares_of(const Pack<T, kWidth>& pack, float squares) {
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    const float value = load_float(&pack.values[j]);
    squares = fmaf(value, value, squares);
  }
  return squares;
}

template <class T, int kWidth>
__device__ Pack<T, kWidth> normalised(const Pack<T, kWidth>& pack, float scale, const float* weights) {
  float weight[kWidth];
  kernels::load_floats(weights, weight);
  float values[kWidth];
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    values[j] = load_float(&pack.values[j]) * scale * weight[j];
  }
  return rounded<T, kWidth>(values);
}

template <class T, int kWidth, int kRowThreads, bool kAdd>
__global__ void __launch_bounds__(kThreads, kAdd ? 2 : 3) rms_norm_kernel(const NormParams<T> params) {
  using RowPack = Pack<T, kWidth>;
  const i64 row = static_cast<i64>(blockIdx.x) * (kThreads / kRowThreads) + threadIdx.x / kRowThreads;
  if (row >= params.rows) {
    return;  // with all threads of the row
  }
  const int packs = params.width / kWidth;
  const int thread = static_cast<int>(threadIdx.x) % kRowThreads;
  const i64 first = row * packs;
  const RowPack* a = reinterpret_cast<const RowPack*>(params.a) + first;
  const RowPack* b = kAdd ? reinterpret_cast<const RowPack*>(params.b) + first : nullptr;
  RowPack* x = kAdd ? reinterpret_cast<RowPack*>(params.x) + first : nullptr;
  RowPack* y = reinterpret_cast<RowPack*>(params.y) + first;
  RowPack kept[kKept];
  RowPack other[kAdd ? kKept : 1];
#pragma unroll
  for (int p = 0; p < kKept; ++p) {
    const int i = thread + p * kRowThreads;
    if (i < packs) {
      kept[p] = a[i];
      if constexpr (kAdd) {
        other[p] = b[i];
      }
    }
  }
  float squares = 0;
#pragma unroll
  for (int p = 0; p < kKept; ++p) {
    const int i = thread + p * kRowThreads;
    if (i < packs) {
      if constexpr (kAdd) {
        kept[p] = sum_of<T, kWidth>(kept[p], other[p]);
        x[i] = kept[p];
      }
      squares = squares_of<T, kWidth>(kept[p], squares);
    }
  }
  for (int i = thread + kKept * kRowThreads; i < packs; i += kRowThreads) {
    RowPack pack = a[i];
    if constexpr (kAdd) {
      pack = sum_of<T, kWidth>(pack, b[i]);
      x[i] = pack;
    }
    squares = squares_of<T, kWidth>(pack, squares);
  }
  const float mean = row_sum<kRowThreads>(squares) / static_cast<float>(params.width);
  const float scale = 1.0F / sqrtf(mean + params.eps);
#pragma unroll
  for (int p = 0; p < kKept; ++p) {
    const int i = thread + p * kRowThreads;
    if (i < packs) {
      y[i] = normalised<T, kWidth>(kept[p], scale, params.weight + i * kWidth);
    }
  }
  for (int i = thread + kKept * kRowThreads; i < packs; i += kRowThreads) {
    y[i] = normalised<T, kWidth>(kAdd ? x[i] : a[i], scale, params.weight + i * kWidth);
  }
  if (thread == 0) {
    params.rstd[row] = scale;
  }
}

template <bool kAdd, class T>
void launch_norm(CUstream_st* stream, const NormParams<T>& params) {
  constexpr int kWidth = kPackWidth<T>;
  if (params.rows == 0) {
    return;
  }
  const bool packed = kernels::is_aligned(params.weight) &&
                      (kAdd ? kernels::are_packs<T>(params.width, {params.a, params.b, params.x, params.y})
                            : kernels::are_packs<T>(params.width, {params.a, params.y}));
  const unsigned warps = blocks_for(params.rows, kThreads / kWarp);
  const unsigned rows = blocks_for(params.rows, 1);
  if (packed && params.width <= kKept * kWarp * kWidth) {
    rms_norm_kernel<T, kWidth, kWarp, kAdd><<<warps, kThreads, 0, stream>>>(params);
  } else if (packed) {
    rms_norm_kernel<T, kWidth, kThreads, kAdd><<<rows, kThreads, 0, stream>>>(params);
  } else {
    rms_norm_kernel<T, 1, kThreads, kAdd><<<rows, kThreads, 0, stream>>>(params);
  }
  WYCH_CUDA_LAUNCHED();
}

template <class T>
struct BackwardParams {
  i64 rows;
  int width;
  const T* dy;
  const T* x;
  const float* weight;
  const float* rstd;
  const T* dpassing;  // null: none
  T* dx;              // may be dy, x or dpassing
  float* partial;     // [blocks, width]: sums of dweight
};

// scale (dy weight - x mean) [+ dpassing].
template <class T, int kWidth, bool kPassing>
__device__ Pack<T, kWidth> gradient(const Pack<T, kWidth>& dy, const Pack<T, kWidth>& x, const float* weights,
                                    float scale, float mean, const Pack<T, kWidth>& passing) {
  float weight[kWidth];
  kernels::load_floats(weights, weight);
  float values[kWidth];
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    const float g = load_float(&dy.values[j]) * weight[j];
    values[j] = scale * (g - load_float(&x.values[j]) * mean);
    if constexpr (kPassing) {
      values[j] += load_float(&passing.values[j]);
    }
  }
  return rounded<T, kWidth>(values);
}

// sum_j dy weight x.
template <class T, int kWidth>
__device__ float dot_of(const Pack<T, kWidth>& dy, const Pack<T, kWidth>& x, const float* weights,
                        float dot) {
  float weight[kWidth];
  kernels::load_floats(weights, weight);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    dot = fmaf(load_float(&dy.values[j]) * weight[j], load_float(&x.values[j]), dot);
  }
  return dot;
}

template <class T, int kWidth>
__device__ void add_dweight(const Pack<T, kWidth>& dy, const Pack<T, kWidth>& x, float scale, float* sums) {
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    sums[j] = fmaf(load_float(&dy.values[j]), load_float(&x.values[j]) * scale, sums[j]);
  }
}

// A thread has the same columns of every row: its first kOwn packs stay in registers, the sums of the others
// lie in `partial` from the start. dx = rstd (g - x rstd^2 mean(g x)), g = dy weight.
template <class T, int kWidth, int kRows, int kOwn, bool kPassing>
__global__ void __launch_bounds__(kThreads, RmsNormBackward::kBlocksPerSm)
    rms_norm_backward_kernel(const BackwardParams<T> params) {
  using RowPack = Pack<T, kWidth>;
  __shared__ float scratch[kRows][kThreads / kWarp];
  const int packs = params.width / kWidth;
  const int thread = static_cast<int>(threadIdx.x);
  const int beyond = thread + kOwn * kThreads;
  float* partial = params.partial + static_cast<i64>(blockIdx.x) * params.width;
  float sums[kOwn][kWidth] = {};
  for (int i = beyond; i < packs; i += kThreads) {
    for (int j = 0; j < kWidth; ++j) {
      partial[i * kWidth + j] = 0;
    }
  }
  for (i64 row = static_cast<i64>(blockIdx.x) * kRows; row < params.rows;
       row += static_cast<i64>(gridDim.x) * kRows) {
    const i64 first = row * packs;
    const RowPack* all_dy = reinterpret_cast<const RowPack*>(params.dy) + first;
    const RowPack* all_x = reinterpret_cast<const RowPack*>(params.x) + first;
    const RowPack* all_passing = reinterpret_cast<const RowPack*>(params.dpassing) + first;
    RowPack* all_dx = reinterpret_cast<RowPack*>(params.dx) + first;
    RowPack dy[kRows][kOwn];
    RowPack x[kRows][kOwn];
    RowPack passing[kRows][kOwn];
    float dots[kRows] = {};
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int p = 0; p < kOwn; ++p) {
        const int i = thread + p * kThreads;
        if (row + r < params.rows && i < packs) {
          dy[r][p] = all_dy[r * packs + i];
          x[r][p] = all_x[r * packs + i];
          if constexpr (kPassing) {
            passing[r][p] = all_passing[r * packs + i];
          }
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int p = 0; p < kOwn; ++p) {
        const int i = thread + p * kThreads;
        if (row + r < params.rows && i < packs) {
          dots[r] = dot_of<T, kWidth>(dy[r][p], x[r][p], params.weight + i * kWidth, dots[r]);
        }
      }
      for (int i = beyond; i < packs && row + r < params.rows; i += kThreads) {
        dots[r] = dot_of<T, kWidth>(all_dy[r * packs + i], all_x[r * packs + i], params.weight + i * kWidth,
                                    dots[r]);
      }
    }
    kernels::block_sums<kThreads, kRows>(dots, scratch);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (row + r < params.rows) {
        const float scale = params.rstd[row + r];
        const float mean = dots[r] * scale * scale / static_cast<float>(params.width);
#pragma unroll
        for (int p = 0; p < kOwn; ++p) {
          const int i = thread + p * kThreads;
          if (i < packs) {
            add_dweight<T, kWidth>(dy[r][p], x[r][p], scale, sums[p]);
            all_dx[r * packs + i] = gradient<T, kWidth, kPassing>(
                dy[r][p], x[r][p], params.weight + i * kWidth, scale, mean, passing[r][p]);
          }
        }
        for (int i = beyond; i < packs; i += kThreads) {
          const RowPack left = all_dy[r * packs + i];
          const RowPack right = all_x[r * packs + i];
          const RowPack also = kPassing ? all_passing[r * packs + i] : RowPack{};
          add_dweight<T, kWidth>(left, right, scale, partial + i * kWidth);
          all_dx[r * packs + i] =
              gradient<T, kWidth, kPassing>(left, right, params.weight + i * kWidth, scale, mean, also);
        }
      }
    }
  }
#pragma unroll
  for (int p = 0; p < kOwn; ++p) {
    const int i = thread + p * kThreads;
    for (int j = 0; j < kWidth && i < packs; ++j) {
      partial[i * kWidth + j] = sums[p][j];
    }
  }
}

template <bool kPassing, class T>
void launch_backward(CUstream_st* stream, unsigned blocks, const BackwardParams<T>& params) {
  const bool packed = kernels::is_aligned(params.weight) &&
                      kernels::are_packs<T>(params.width, {params.dy, params.x, params.dpassing, params.dx});
  constexpr int kWidth = kPackWidth<T>;
  if (blocks == 0) {
    return;
  }
  if (packed && params.width <= kThreads * kWidth) {
    rms_norm_backward_kernel<T, kWidth, 2, 1, kPassing><<<blocks, kThreads, 0, stream>>>(params);
  } else if (packed) {
    rms_norm_backward_kernel<T, kWidth, 1, 2, kPassing><<<blocks, kThreads, 0, stream>>>(params);
  } else {
    rms_norm_backward_kernel<T, 1, 1, 2, kPassing><<<blocks, kThreads, 0, stream>>>(params);
  }
  WYCH_CUDA_LAUNCHED();
}

}  // namespace

void RmsNorm::launch_cuda(const ir::CudaContext& context) const {
  kernels::dispatch_cuda(context.input(0).type->dtype, [&]<class T>(T) {
    launch_norm<false>(context.stream,
                       NormParams<T>{context.input(0).dim(0), static_cast<int>(context.input(0).dim(1)),
                                     static_cast<float>(eps_), device_cast<const T>(context.input(0)),
                                     nullptr, context.input(1).as<float>(), nullptr,
                                     device_cast<T>(context.output(0)), context.output(1).as<float>()});
  });
}

void AddRmsNorm::launch_cuda(const ir::CudaContext& context) const {
  kernels::dispatch_cuda(context.input(0).type->dtype, [&]<class T>(T) {
    launch_norm<true>(context.stream,
                      NormParams<T>{context.input(0).dim(0), static_cast<int>(context.input(0).dim(1)),
                                    static_cast<float>(eps_), device_cast<const T>(context.input(0)),
                                    device_cast<const T>(context.input(1)), context.input(2).as<float>(),
                                    device_cast<T>(context.output(0)), device_cast<T>(context.output(1)),
                                    context.output(2).as<float>()});
  });
}

void RmsNormBackward::launch_cuda(const ir::CudaContext& context) const {
  const i64 rows = context.input(0).dim(0);
  const i64 width = context.input(0).dim(1);
  const i64 blocks = cuda_blocks(rows, context.target);
  auto* partial = reinterpret_cast<float*>(context.workspace);
  kernels::dispatch_cuda(context.input(0).type->dtype, [&]<class T>(T) {
    const BackwardParams<T> params{rows,
                                   static_cast<int>(width),
                                   device_cast<const T>(context.input(0)),
                                   device_cast<const T>(context.input(1)),
                                   context.input(2).as<float>(),
                                   context.input(3).as<float>(),
                                   passing_ ? device_cast<const T>(context.input(4)) : nullptr,
                                   device_cast<T>(context.output(0)),
                                   partial};
    if (passing_) {
      launch_backward<true>(context.stream, blocks_for(blocks, 1), params);
    } else {
      launch_backward<false>(context.stream, blocks_for(blocks, 1), params);
    }
  });
  kernels::launch_sum_columns(context.stream, {.chunks = blocks,
                                               .stride = width,
                                               .repeats = 1,
                                               .columns = static_cast<int>(width),
                                               .partial = partial,
                                               .accumulate = context.accumulate,
                                               .sums = context.output(1).as<float>()});
}

}  // namespace wych::ops
