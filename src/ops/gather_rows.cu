// Gather: a warp a row, 8 bytes a float32 element.
// Scatter: a block owns a group of rows and up to 256 columns of y, whose sums it keeps in shared memory. It
// goes through a piece of the index in order, lists the entries that name one of its rows, and adds these, a
// thread a column: without atomics, and in order. The sums of several pieces (ScatterPieces) are added by a
// second launch. x is read once, the index once for each group and each 256 columns, mostly from the cache.
#include <algorithm>

#include "kernels/cuda_rows.cuh"
#include "ops/gather_rows.h"

namespace wych::ops {
namespace {

using kernels::blocks_for;
using kernels::kWarp;

constexpr int kThreads = 256;
constexpr i64 kMaxBlocks = 1 << 14;
constexpr int kGroupBytes = 1 << 15;  // of a block's sums
constexpr int kEntries = 4;           // consecutive ones that a thread looks at together
constexpr int kStrip = kEntries * kThreads;

template <class T>
constexpr int kGroupRows = kGroupBytes / (kThreads * static_cast<int>(sizeof(T)));

// The row that an entry names, or -1.
__device__ i64 checked_row(i64 row, i64 num_rows) {
  if (row < -1 || row >= num_rows) {
    __trap();
  }
  return row;
}

template <class T>
__global__ void __launch_bounds__(kernels::kRowThreads)
    gather_rows_kernel(i64 count, i64 num_rows, i64 width, const i32* __restrict__ index,
                       const T* __restrict__ x, T* __restrict__ y) {
  const i64 i = kernels::warp_row();
  if (i >= count) {
    return;
  }
  const i64 row = checked_row(index[i], num_rows);
  for (i64 j = kernels::lane_index(); j < width; j += kWarp) {
    y[i * width + j] = row < 0 ? T{0} : x[row * width + j];
  }
}

struct Match {
  int row;    // of the group
  int entry;  // of the strip
};

// Lists the entries [first, min(first + kStrip, end)) that name one of the `rows` rows from `first_row` on,
// in order; returns their number. All threads call together. `matches` and `warp_counts` are shared memory;
// what the last call left in `matches` must be read before the next call.
__device__ int find_matches(const i32* __restrict__ index, i64 first, i64 end, i64 num_rows, i64 first_row,
                            int rows, Match* matches, int* warp_counts) {
  const int thread = static_cast<int>(threadIdx.x);
  int local[kEntries];
  int found = 0;
#pragma unroll
  for (int i = 0; i < kEntries; ++i) {
    const i64 entry = first + thread * kEntries + i;
    const i64 row = entry < end ? checked_row(index[entry], num_rows) - first_row : -1;
    local[i] = row >= 0 && row < rows ? static_cast<int>(row) : -1;
    found += local[i] >= 0 ? 1 : 0;
  }
  const int upto = kernels::warp_inclusive_sum(found);
  if (kernels::lane_index() == kWarp - 1) {
    warp_counts[thread / kWarp] = upto;
  }
  __syncthreads();  // also: everybody has read the matches of the last call
  int to = upto - found;
  int total = 0;
#pragma unroll
  for (int warp = 0; warp < kThreads / kWarp; ++warp) {
    to += warp < thread / kWarp ? warp_counts[warp] : 0;
    total += warp_counts[warp];
  }
#pragma unroll
  for (int i = 0; i < kEntries; ++i) {
    if (local[i] >= 0) {
      matches[to++] = Match{local[i], thread * kEntries + i};
    }
  }
  __syncthreads();
  return total;
}

struct ScatterExtents {
  i64 entries;
  i64 length;  // entries of a piece
  i64 num_rows;
  i64 width;
  i64 groups;  // of rows
  i64 tiles;   // of columns
};

// y [pieces, num_rows, width]. Blocks are numbered along the tiles, then the groups, then the pieces.
template <class T>
__global__ void __launch_bounds__(kThreads)
    scatter_add_rows_kernel(const ScatterExtents extents, const i32* __restrict__ index,
                            const T* __restrict__ x, T* __restrict__ y) {
  __shared__ T sums[kGroupRows<T>][kThreads];  // each thread uses its own column alone
  __shared__ Match matches[kStrip];
  __shared__ int warp_counts[kThreads / kWarp];
  const i64 width = extents.width;
  const i64 piece = blockIdx.x / extents.tiles / extents.groups;
  const i64 first_row = blockIdx.x / extents.tiles % extents.groups * kGroupRows<T>;
  const i64 column = blockIdx.x % extents.tiles * kThreads + threadIdx.x;
  const i64 begin = piece * extents.length;
  const i64 end = begin + extents.length < extents.entries ? begin + extents.length : extents.entries;
#pragma unroll
  for (int row = 0; row < kGroupRows<T>; ++row) {
    sums[row][threadIdx.x] = T{0};
  }
  for (i64 first = begin; first < end; first += kStrip) {
    const int count =
        find_matches(index, first, end, extents.num_rows, first_row, kGroupRows<T>, matches, warp_counts);
    if (column < width) {
#pragma unroll 4
      for (int i = 0; i < count; ++i) {
        sums[matches[i].row][threadIdx.x] += x[(first + matches[i].entry) * width + column];
      }
    }
  }
  for (int row = 0; row < kGroupRows<T> && first_row + row < extents.num_rows && column < width; ++row) {
    y[(piece * extents.num_rows + first_row + row) * width + column] = sums[row][threadIdx.x];
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    scatter_add_pieces_kernel(i64 count, i64 pieces, const T* __restrict__ sums, T* __restrict__ y) {
  for (i64 i = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += static_cast<i64>(gridDim.x) * kThreads) {
    T sum = T{0};
#pragma unroll 4
    for (i64 piece = 0; piece < pieces; ++piece) {
      sum += sums[piece * count + i];
    }
    y[i] = sum;
  }
}

template <class T>
void launch_scatter(const ir::CudaContext& context) {
  const i64 entries = context.input(1).elements();
  const i64 num_rows = context.output(0).dim(0);
  const i64 width = context.output(0).dim(1);
  const ScatterPieces pieces(entries, num_rows);
  const ScatterExtents extents{
      entries, pieces.length, num_rows, width, ceil_div(num_rows, kGroupRows<T>), ceil_div(width, kThreads)};
  T* y = context.output(0).as<T>();
  T* sums = pieces.count > 1 ? reinterpret_cast<T*>(context.workspace) : y;
  scatter_add_rows_kernel<<<blocks_for(pieces.count * extents.groups * extents.tiles, 1), kThreads, 0,
                            context.stream>>>(extents, context.input(1).as<i32>(), context.input(0).as<T>(),
                                              sums);
  WYCH_CUDA_LAUNCHED();
  if (pieces.count > 1) {
    const i64 count = num_rows * width;
    const i64 blocks = std::min(kMaxBlocks, ceil_div(count, kThreads));
    scatter_add_pieces_kernel<<<blocks_for(blocks, 1), kThreads, 0, context.stream>>>(count, pieces.count,
                                                                                      sums, y);
    WYCH_CUDA_LAUNCHED();
  }
}

}  // namespace

void GatherRows::launch_cuda(const ir::CudaContext& context) const {
  if (context.output(0).elements() == 0) {
    return;
  }
  const i64 count = context.input(1).elements();
  dispatch_float(context.output(0).type->dtype, [&]<class T>(T) {
    gather_rows_kernel<<<blocks_for(count, kernels::kRowsPerBlock), kernels::kRowThreads, 0,
                         context.stream>>>(count, context.input(0).dim(0), context.output(0).dim(1),
                                           context.input(1).as<i32>(), context.input(0).as<T>(),
                                           context.output(0).as<T>());
    WYCH_CUDA_LAUNCHED();
  });
}

void ScatterAddRows::launch_cuda(const ir::CudaContext& context) const {
  if (context.output(0).elements() == 0) {
    return;
  }
  dispatch_float(context.output(0).type->dtype, [&]<class T>(T) { launch_scatter<T>(context); });
}

}  // namespace wych::ops
