// A reshaped tensor is a view: nothing moves. A transposed one is read and written once, 8 bytes a float32
// element: element by element where rows stay rows, else through tiles in shared memory, so that reads and
// writes both run along memory.
#include <algorithm>
#include <array>

#include "kernels/cuda_launch.cuh"
#include "ops/reshape.h"

namespace wych::ops {
namespace {

using kernels::blocks_for;

constexpr int kThreads = 256;
constexpr i64 kMaxBlocks = 1 << 14;
constexpr int kTile = 32;
constexpr int kTileRows = kThreads / kTile;  // of a tile at a time

template <class T>
struct TransposeParams {
  int rank;
  i64 extents[ir::Shape::kMaxRank];  // of y
  i64 stride[ir::Shape::kMaxRank];   // distance in x between neighbours along an axis of y
  const T* x;
  T* y;
};

// In the order of y. Index holds the number of elements and a grid beyond it.
template <class Index, class T>
__global__ void __launch_bounds__(kThreads)
    transpose_elements_kernel(Index count, const TransposeParams<T> params) {
  for (Index i = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += static_cast<Index>(gridDim.x) * kThreads) {
    Index rest = i;
    i64 from = 0;
    for (int axis = params.rank - 1; axis >= 0; --axis) {
      const auto extent = static_cast<Index>(params.extents[axis]);
      from += static_cast<i64>(rest % extent) * params.stride[axis];
      rest /= extent;
    }
    params.y[i] = params.x[from];
  }
}

// `axis` of y, which is not its last, is the last one of x. A block moves a tile of these two axes.
template <class T>
__global__ void __launch_bounds__(kThreads)
    transpose_tiles_kernel(int axis, const TransposeParams<T> params) {
  __shared__ T tile[kTile][kTile + 1];
  const int last = params.rank - 1;
  const i64 columns = params.extents[last];
  const i64 rows = params.extents[axis];
  i64 block = blockIdx.x;
  const i64 column_tiles = ceil_div(columns, kTile);
  const i64 first_column = block % column_tiles * kTile;
  block /= column_tiles;
  const i64 row_tiles = ceil_div(rows, kTile);
  const i64 first_row = block % row_tiles * kTile;
  block /= row_tiles;
  i64 from = 0;
  i64 to = 0;
  i64 row_step = 0;
  i64 step = columns;  // distance in y between neighbours along `other`
  for (int other = last - 1; other >= 0; --other) {
    if (other == axis) {
      row_step = step;
    } else {
      const i64 index = block % params.extents[other];
      block /= params.extents[other];
      from += index * params.stride[other];
      to += index * step;
    }
    step *= params.extents[other];
  }
  const int across = static_cast<int>(threadIdx.x) % kTile;
  const int down = static_cast<int>(threadIdx.x) / kTile;
  for (int i = down; i < kTile; i += kTileRows) {
    if (first_row + across < rows && first_column + i < columns) {
      tile[i][across] = params.x[from + first_row + across + (first_column + i) * params.stride[last]];
    }
  }
  __syncthreads();
  for (int i = down; i < kTile; i += kTileRows) {
    if (first_row + i < rows && first_column + across < columns) {
      params.y[to + (first_row + i) * row_step + first_column + across] = tile[across][i];
    }
  }
}

template <class T>
void launch_transpose(const ir::CudaContext& context, const std::vector<int>& order) {
  const ir::Shape& from = context.input(0).type->shape;
  const ir::Shape& to = context.output(0).type->shape;
  const i64 count = to.elements();
  TransposeParams<T> params{to.rank(), {}, {}, context.input(0).as<T>(), context.output(0).as<T>()};
  int row_axis = to.rank() - 1;  // the axis of y that runs along the rows of x
  for (int axis = 0; axis < to.rank(); ++axis) {
    const int source = order[static_cast<std::size_t>(axis)];
    params.extents[axis] = to[axis];
    params.stride[axis] = 1;
    for (int inner = source + 1; inner < from.rank(); ++inner) {
      params.stride[axis] *= from[inner];
    }
    row_axis = source == from.rank() - 1 ? axis : row_axis;
  }
  if (row_axis != to.rank() - 1) {
    const i64 tiles = count / to[-1] / to[row_axis] * ceil_div(to[-1], kTile) * ceil_div(to[row_axis], kTile);
    transpose_tiles_kernel<<<blocks_for(tiles, 1), kThreads, 0, context.stream>>>(row_axis, params);
  } else {
    const unsigned blocks = blocks_for(std::min(kMaxBlocks, ceil_div(count, kThreads)), 1);
    if (count < i64{1} << 31) {
      transpose_elements_kernel<<<blocks, kThreads, 0, context.stream>>>(static_cast<u32>(count), params);
    } else {
      transpose_elements_kernel<<<blocks, kThreads, 0, context.stream>>>(count, params);
    }
  }
  WYCH_CUDA_LAUNCHED();
}

}  // namespace

void Reshape::launch_cuda(const ir::CudaContext& /*context*/) const {}

void Transpose::launch_cuda(const ir::CudaContext& context) const {
  if (context.output(0).elements() == 0) {
    return;
  }
  dispatch_float(context.output(0).type->dtype, [&]<class T>(T) { launch_transpose<T>(context, order_); });
}

}  // namespace wych::ops
