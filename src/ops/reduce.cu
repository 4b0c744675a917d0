// Along the last extent a warp reduces a piece of a row; along the rows a block reduces a piece of up to 256
// columns, several threads a column where there are fewer. Where ReducePieces gives several pieces, a second
// launch reduces these: the same kernel, on the matrix of pieces. x is read once. Broadcast writes y once,
// its threads placed as those that reduce along the rows.
#include <cmath>

#include "kernels/cuda_rows.cuh"
#include "ops/reduce.h"

namespace wych::ops {
namespace {

using kernels::blocks_for;

constexpr int kThreads = ReducePieces::kThreads;

// `later` stands behind `value` in a reduction. A NaN makes a maximum NaN.
template <bool kMax, class T>
__device__ T combine(T value, T later) {
  if constexpr (kMax) {
    return later > value || later != later ? later : value;
  } else {
    return value + later;
  }
}

template <bool kMax, class T>
__device__ T nothing() {
  return kMax ? static_cast<T>(-INFINITY) : T{0};
}

// x [rows, width] -> y [rows, pieces] along the last extent, [pieces, width] along the rows.
template <class T>
struct ReduceParams {
  i64 rows;
  i64 width;
  i64 length;  // entries of a piece
  i64 pieces;
  T divisor;
  const T* x;
  T* y;
};

template <bool kMax, class T>
__global__ void __launch_bounds__(kernels::kRowThreads) reduce_last_kernel(const ReduceParams<T> params) {
  const i64 number = kernels::warp_row();
  if (number >= params.rows * params.pieces) {
    return;
  }
  const i64 begin = number % params.pieces * params.length;
  const i64 end = begin + params.length < params.width ? begin + params.length : params.width;
  const T* row = params.x + number / params.pieces * params.width;
  T value = nothing<kMax, T>();
#pragma unroll 4
  for (i64 j = begin + kernels::lane_index(); j < end; j += kernels::kWarp) {
    value = combine<kMax>(value, row[j]);
  }
#pragma unroll
  for (int offset = kernels::kWarp / 2; offset > 0; offset /= 2) {
    value = combine<kMax>(value, __shfl_down_sync(0xffffffffU, value, offset));
  }
  if (kernels::lane_index() == 0) {
    params.y[number] = value / params.divisor;
  }
}

// Where a thread of a block works in a matrix: on one column, every `lanes`-th row from `lane` on. Blocks are
// numbered along the tiles of kThreads columns first.
struct Place {
  __device__ explicit Place(i64 width)
      : columns(width < kThreads ? static_cast<int>(width) : kThreads),
        lanes(kThreads / columns),
        lane(static_cast<int>(threadIdx.x) / columns),
        piece(blockIdx.x / ceil_div(width, kThreads)),
        column(blockIdx.x % ceil_div(width, kThreads) * kThreads + threadIdx.x % columns),
        works(lane < lanes && column < width) {}

  int columns;  // of the block
  int lanes;
  int lane;
  i64 piece;
  i64 column;
  bool works;
};

template <bool kMax, class T>
__global__ void __launch_bounds__(kThreads) reduce_rows_kernel(const ReduceParams<T> params) {
  __shared__ T values[kThreads];
  const Place place(params.width);
  const i64 begin = place.piece * params.length;
  const i64 end = begin + params.length < params.rows ? begin + params.length : params.rows;
  T value = nothing<kMax, T>();
  if (place.works) {
#pragma unroll 4
    for (i64 r = begin + place.lane; r < end; r += place.lanes) {
      value = combine<kMax>(value, params.x[r * params.width + place.column]);
    }
  }
  T& own = values[threadIdx.x];
  own = value;
  __syncthreads();
  for (int left = place.lanes; left > 1;) {  // lanes whose values are not yet in a lower one's
    const int half = (left + 1) / 2;
    if (place.lane + half < left) {
      own = combine<kMax>(own, values[static_cast<int>(threadIdx.x) + half * place.columns]);
    }
    __syncthreads();
    left = half;
  }
  if (place.works && place.lane == 0) {
    params.y[place.piece * params.width + place.column] = own / params.divisor;
  }
}

template <bool kMax, class T>
void launch_reduce(CUstream_st* stream, Along along, const ReduceParams<T>& params) {
  if (along == Along::kLast) {
    reduce_last_kernel<kMax><<<blocks_for(params.rows * params.pieces, kernels::kRowsPerBlock),
                               kernels::kRowThreads, 0, stream>>>(params);
  } else {
    reduce_rows_kernel<kMax>
        <<<blocks_for(ceil_div(params.width, kThreads) * params.pieces, 1), kThreads, 0, stream>>>(params);
  }
  WYCH_CUDA_LAUNCHED();
}

template <class T>
void launch_reduce(CUstream_st* stream, ReduceKind kind, Along along, const ReduceParams<T>& params) {
  if (kind == ReduceKind::kMax) {
    launch_reduce<true>(stream, along, params);
  } else {
    launch_reduce<false>(stream, along, params);
  }
}

constexpr i64 kRowsPerLane = 8;

// y [rows, width]: x[row] or x[column].
template <Along kAlong, class T>
__global__ void __launch_bounds__(kThreads)
    broadcast_kernel(i64 rows, i64 width, const T* __restrict__ x, T* __restrict__ y) {
  const Place place(width);
  if (!place.works) {
    return;
  }
  const i64 begin = place.piece * place.lanes * kRowsPerLane;
#pragma unroll
  for (i64 i = 0; i < kRowsPerLane; ++i) {
    const i64 r = begin + place.lane + i * place.lanes;
    if (r < rows) {
      y[r * width + place.column] = x[kAlong == Along::kLast ? r : place.column];
    }
  }
}

template <Along kAlong, class T>
void launch_broadcast(const ir::CudaContext& context) {
  const i64 rows = context.output(0).type->shape.rows();
  const i64 width = context.output(0).dim(-1);
  const i64 lanes = width < kThreads ? kThreads / width : 1;
  const i64 blocks = ceil_div(width, kThreads) * ceil_div(rows, lanes * kRowsPerLane);
  broadcast_kernel<kAlong><<<blocks_for(blocks, 1), kThreads, 0, context.stream>>>(
      rows, width, context.input(0).as<T>(), context.output(0).as<T>());
  WYCH_CUDA_LAUNCHED();
}

}  // namespace

void Reduce::launch_cuda(const ir::CudaContext& context) const {
  if (context.output(0).elements() == 0) {
    return;
  }
  dispatch_float(context.output(0).type->dtype, [&]<class T>(T) {
    const ir::Shape& shape = context.input(0).type->shape;
    const ReducePieces pieces(shape, along_);
    ReduceParams<T> params{
        shape.rows(), shape[-1], pieces.length, pieces.count, T{1}, context.input(0).as<T>(), nullptr};
    i64& reduced = along_ == Along::kLast ? params.width : params.rows;
    const i64 count = reduced;
    if (pieces.count > 1) {
      params.y = reinterpret_cast<T*>(context.workspace);
      launch_reduce(context.stream, kind_, along_, params);
      params.x = params.y;
      reduced = pieces.count;
      params.length = pieces.count;
      params.pieces = 1;
    }
    params.divisor = kind_ == ReduceKind::kMean ? static_cast<T>(count) : T{1};
    params.y = context.output(0).as<T>();
    launch_reduce(context.stream, kind_, along_, params);
  });
}

void Broadcast::launch_cuda(const ir::CudaContext& context) const {
  if (context.output(0).elements() == 0) {
    return;
  }
  dispatch_float(context.output(0).type->dtype, [&]<class T>(T) {
    if (along_ == Along::kLast) {
      launch_broadcast<Along::kLast, T>(context);
    } else {
      launch_broadcast<Along::kRows, T>(context);
    }
  });
}

}  // namespace wych::ops
