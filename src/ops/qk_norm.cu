// Every normalised row of a token, and every value row, belongs to one warp (up to 512 columns) or one block.
// A row is read twice, the second time from the cache: 8 bytes a float32 element, the gradient 12. The
// weights' gradients sum over chunks of tokens and then over the chunks, in blocks of 32 columns x 8 rows.
#include "kernels/cuda_launch.cuh"
#include "ops/qk_norm.h"

namespace wych::ops {
namespace {

using kernels::blocks_for;
using kernels::kWarp;

constexpr int kThreads = 256;
constexpr int kSumRows = kThreads / kWarp;
constexpr i64 kMaxWarpColumns = 512;

// The rows of a token: queries, keys, values; see QkNormShape.
struct Rows {
  i64 tokens;
  i64 width;
  i64 key_column;
  i64 value_column;
  int query_rows;
  int key_rows;  // and value rows, of as many columns
  int query_columns;
  int key_columns;
};

Rows rows_of(const QkNormShape& shape, i64 tokens) {
  return {tokens,
          shape.layout.width(),
          shape.layout.key_column(),
          shape.layout.value_column(),
          static_cast<int>(shape.query_rows()),
          static_cast<int>(shape.key_rows()),
          static_cast<int>(shape.query_columns()),
          static_cast<int>(shape.key_columns())};
}

struct Row {
  i64 first;  // element of qkv
  int columns;
  i64 rstd;             // its place there
  const float* weight;  // null: a value row, which is copied
};

// Row `number` of all tokens' rows.
__device__ Row row_at(const Rows& rows, i64 number, const float* q_weight, const float* k_weight) {
  const int norms = rows.query_rows + rows.key_rows;
  const i64 token = number / (norms + rows.key_rows);
  const int row = static_cast<int>(number % (norms + rows.key_rows));
  const i64 first = token * rows.width;
  if (row < rows.query_rows) {
    return {first + static_cast<i64>(row) * rows.query_columns, rows.query_columns, token * norms + row,
            q_weight};
  }
  const i64 key = first + static_cast<i64>(row - rows.query_rows) * rows.key_columns;
  if (row < norms) {
    return {key + rows.key_column, rows.key_columns, token * norms + row, k_weight};
  }
  const i64 value = first + static_cast<i64>(row - norms) * rows.key_columns;
  return {value + rows.value_column, rows.key_columns, 0, nullptr};
}

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

// The row of this thread, numbered through all blocks.
template <int kRowThreads>
__device__ i64 row_number() {
  return static_cast<i64>(blockIdx.x) * (kThreads / kRowThreads) + threadIdx.x / kRowThreads;
}

struct NormParams {
  Rows rows;
  i64 count;  // of rows
  float eps;
  const float* x;
  const float* q_weight;
  const float* k_weight;
  float* y;  // may be x
  float* rstd;
};

template <int kRowThreads>
__global__ void __launch_bounds__(kThreads) qk_norm_kernel(const NormParams params) {
  const i64 number = row_number<kRowThreads>();
  if (number >= params.count) {
    return;  // with all threads of the row
  }
  const Row row = row_at(params.rows, number, params.q_weight, params.k_weight);
  const float* x = params.x + row.first;
  float* y = params.y + row.first;
  const int thread = static_cast<int>(threadIdx.x) % kRowThreads;
  if (row.weight == nullptr) {
    for (int j = thread; x != y && j < row.columns; j += kRowThreads) {
      y[j] = x[j];
    }
    return;
  }
  float squares = 0;
  for (int j = thread; j < row.columns; j += kRowThreads) {
    squares = fmaf(x[j], x[j], squares);
  }
  const float mean = row_sum<kRowThreads>(squares) / static_cast<float>(row.columns);
  const float scale = 1.0F / sqrtf(mean + params.eps);
  for (int j = thread; j < row.columns; j += kRowThreads) {
    y[j] = x[j] * scale * row.weight[j];
  }
  if (thread == 0) {
    params.rstd[row.rstd] = scale;
  }
}

struct NormDxParams {
  Rows rows;
  i64 count;
  const float* dy;
  const float* x;
  const float* q_weight;
  const float* k_weight;
  const float* rstd;
  float* dx;  // may be dy
};

// dx = rstd (g - x rstd^2 mean(g x)), g = dy weight.
template <int kRowThreads>
__global__ void __launch_bounds__(kThreads) qk_norm_dx_kernel(const NormDxParams params) {
  const i64 number = row_number<kRowThreads>();
  if (number >= params.count) {
    return;
  }
  const Row row = row_at(params.rows, number, params.q_weight, params.k_weight);
  const float* dy = params.dy + row.first;
  const float* x = params.x + row.first;
  float* dx = params.dx + row.first;
  const int thread = static_cast<int>(threadIdx.x) % kRowThreads;
  if (row.weight == nullptr) {
    for (int j = thread; dy != dx && j < row.columns; j += kRowThreads) {
      dx[j] = dy[j];
    }
    return;
  }
  float dot = 0;
  for (int j = thread; j < row.columns; j += kRowThreads) {
    dot = fmaf(dy[j] * row.weight[j], x[j], dot);
  }
  dot = row_sum<kRowThreads>(dot);
  const float scale = params.rstd[row.rstd];
  const float mean = dot * scale * scale / static_cast<float>(row.columns);
  for (int j = thread; j < row.columns; j += kRowThreads) {
    dx[j] = scale * (dy[j] * row.weight[j] - x[j] * mean);
  }
}

// Sum over the rows (threadIdx.y) of a block for each of its columns (threadIdx.x), valid in row 0.
__device__ float sum_of_column(float value) {
  __shared__ float values[kSumRows][kWarp];
  values[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int row = 0; row < kSumRows; ++row) {
    sum += values[row][threadIdx.x];
  }
  return sum;
}

struct NormDwParams {
  i64 tokens;
  i64 tokens_per_chunk;
  i64 width;
  i64 first_column;
  int rows;  // of a token that share the weight
  int columns;
  i64 rstd_rows;  // of a token
  i64 first_rstd;
  const float* dy;
  const float* x;
  const float* rstd;
  float* partial;  // [chunks, columns]
};

__global__ void __launch_bounds__(kThreads) qk_norm_dw_partial_kernel(const NormDwParams params) {
  const i64 j = static_cast<i64>(blockIdx.y) * kWarp + threadIdx.x;
  const i64 begin = blockIdx.x * params.tokens_per_chunk;
  const i64 end =
      begin + params.tokens_per_chunk < params.tokens ? begin + params.tokens_per_chunk : params.tokens;
  float sum = 0;
  if (j < params.columns) {
    for (i64 token = begin + threadIdx.y; token < end; token += kSumRows) {
      for (int row = 0; row < params.rows; ++row) {
        const i64 at =
            token * params.width + params.first_column + static_cast<i64>(row) * params.columns + j;
        const float scale = params.rstd[token * params.rstd_rows + params.first_rstd + row];
        sum = fmaf(params.dy[at], params.x[at] * scale, sum);
      }
    }
  }
  sum = sum_of_column(sum);
  if (threadIdx.y == 0 && j < params.columns) {
    params.partial[blockIdx.x * static_cast<i64>(params.columns) + j] = sum;
  }
}

__global__ void __launch_bounds__(kThreads)
    qk_norm_dw_sum_kernel(i64 chunks, i64 columns, const float* __restrict__ partial, bool accumulate,
                          float* __restrict__ dw) {
  const i64 j = static_cast<i64>(blockIdx.x) * kWarp + threadIdx.x;
  float sum = 0;
  if (j < columns) {
    for (i64 chunk = threadIdx.y; chunk < chunks; chunk += kSumRows) {
      sum += partial[chunk * columns + j];
    }
  }
  sum = sum_of_column(sum);
  if (threadIdx.y == 0 && j < columns) {
    dw[j] = accumulate ? dw[j] + sum : sum;
  }
}

bool is_for_warps(const QkNormShape& shape) {
  return shape.query_columns() <= kMaxWarpColumns && shape.key_columns() <= kMaxWarpColumns;
}

i64 num_rows(const QkNormShape& shape, i64 tokens) {
  return tokens * (shape.query_rows() + 2 * shape.key_rows());
}

}  // namespace

void QkNorm::launch_cuda(const ir::CudaContext& context) const {
  const i64 tokens = context.input(0).dim(0);
  const i64 count = num_rows(shape_, tokens);
  if (count == 0) {
    return;
  }
  const Rows rows = rows_of(shape_, tokens);
  const NormParams params{rows,
                          count,
                          static_cast<float>(eps_),
                          context.input(0).as<float>(),
                          context.input(1).as<float>(),
                          context.input(2).as<float>(),
                          context.output(0).as<float>(),
                          context.output(1).as<float>()};
  if (is_for_warps(shape_)) {
    qk_norm_kernel<kWarp><<<blocks_for(count, kThreads / kWarp), kThreads, 0, context.stream>>>(params);
  } else {
    qk_norm_kernel<kThreads><<<blocks_for(count, 1), kThreads, 0, context.stream>>>(params);
  }
  WYCH_CUDA_LAUNCHED();
}

void QkNormDx::launch_cuda(const ir::CudaContext& context) const {
  const i64 tokens = context.input(0).dim(0);
  const i64 count = num_rows(shape_, tokens);
  if (count == 0) {
    return;
  }
  const Rows rows = rows_of(shape_, tokens);
  const NormDxParams params{rows,
                            count,
                            context.input(0).as<float>(),
                            context.input(1).as<float>(),
                            context.input(2).as<float>(),
                            context.input(3).as<float>(),
                            context.input(4).as<float>(),
                            context.output(0).as<float>()};
  if (is_for_warps(shape_)) {
    qk_norm_dx_kernel<kWarp><<<blocks_for(count, kThreads / kWarp), kThreads, 0, context.stream>>>(params);
  } else {
    qk_norm_dx_kernel<kThreads><<<blocks_for(count, 1), kThreads, 0, context.stream>>>(params);
  }
  WYCH_CUDA_LAUNCHED();
}

void QkNormDw::launch_cuda(const ir::CudaContext& context) const {
  const bool is_query = part_ == QkPart::kQuery;
  const i64 tokens = context.input(0).dim(0);
  const i64 columns = context.output(0).dim(0);
  const i64 chunks = cuda_chunks(tokens);
  auto* partial = reinterpret_cast<float*>(context.workspace);
  const unsigned column_blocks = blocks_for(columns, kWarp);
  const dim3 threads(kWarp, kSumRows);
  if (chunks > 0) {
    const NormDwParams params{tokens,
                              ceil_div(tokens, chunks),
                              shape_.layout.width(),
                              is_query ? 0 : shape_.layout.key_column(),
                              static_cast<int>(is_query ? shape_.query_rows() : shape_.key_rows()),
                              static_cast<int>(columns),
                              shape_.query_rows() + shape_.key_rows(),
                              is_query ? 0 : shape_.query_rows(),
                              context.input(0).as<float>(),
                              context.input(1).as<float>(),
                              context.input(2).as<float>(),
                              partial};
    const dim3 grid(blocks_for(chunks, 1), column_blocks);
    qk_norm_dw_partial_kernel<<<grid, threads, 0, context.stream>>>(params);
    WYCH_CUDA_LAUNCHED();
  }
  qk_norm_dw_sum_kernel<<<column_blocks, threads, 0, context.stream>>>(
      chunks, columns, partial, context.accumulate, context.output(0).as<float>());
  WYCH_CUDA_LAUNCHED();
}

}  // namespace wych::ops
