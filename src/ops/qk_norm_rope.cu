// One block a token, which in the backward goes on to others. A thread has packs of both halves of a
// head, so the two columns that rotate together are its own; its first pair of packs stays in registers, so a
// row is read once. Sums of rows go over shared memory: a number a pair of packs, added by a warp a row, in
// order. The backward sums its tokens' part of the weights' gradients, column by column; a second launch adds
// the parts of all blocks and heads, in order. Frequencies are those of rope.cu. Bytes of bfloat16: 4 an
// element, the gradient 6.
#include <type_traits>

#include "kernels/cuda_columns.cuh"
#include "kernels/cuda_rows.cuh"
#include "ops/qk_norm_rope.h"

namespace wych::ops {
namespace {

using kernels::blocks_for;
using kernels::device_cast;
using kernels::kPackWidth;
using kernels::kWarp;
using kernels::lane_index;
using kernels::load_float;
using kernels::Pack;
using kernels::rounded;

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr i64 kMaxPairs = 512;  // of a head: what the arguments of a launch hold with ease

// Everything but the data. Rows are those of qk_norm.h; pair i of a head turns by position * frequencies[i].
struct Layout {
  i64 sequence;
  int width;
  int value_column;
  int half;  // pairs of a head
  int query_heads;
  int heads;  // of queries and keys
  bool per_head;
  float scale;  // of cosine and sine
  float frequencies[kMaxPairs];

  __device__ int rows() const { return per_head ? heads : 2; }
  __device__ int row_of(int head) const { return per_head ? head : head < query_heads ? 0 : 1; }
  __device__ int first_head(int row) const { return per_head ? row : row == 0 ? 0 : query_heads; }
  __device__ int end_head(int row) const { return per_head ? row + 1 : row == 0 ? query_heads : heads; }
  // The place of a head's first column in its weight.
  __device__ int weight_column(int head) const {
    return per_head ? 0 : 2 * half * (head < query_heads ? head : head - query_heads);
  }
};

Layout layout_of(const QkNormRopeShape& shape) {
  const HeadLayout& heads = shape.rope.layout;
  WYCH_CHECK(heads.head_dim <= 2 * kMaxPairs, "head_dim {}", heads.head_dim);
  Layout layout{shape.rope.sequence,
                static_cast<int>(heads.width()),
                static_cast<int>(heads.value_column()),
                static_cast<int>(heads.head_dim / 2),
                static_cast<int>(heads.query_heads),
                static_cast<int>(heads.query_heads + heads.kv_heads),
                shape.per_head,
                static_cast<float>(shape.rope.yarn.factor != 1.0 ? shape.rope.yarn.attention_factor : 1.0),
                {}};
  fill_frequencies(shape.rope, layout.frequencies);
  return layout;
}

// Where a thread's pair of packs lies.
template <int kWidth>
struct Place {
  __device__ Place(const Layout& layout, int pair) {
    const int packs_of_half = layout.half / kWidth;
    head = pair / packs_of_half;
    angle = pair % packs_of_half * kWidth;
    first = head * 2 * layout.half + angle;
    second = first + layout.half;
  }
  int head;
  int angle;  // of the first element
  int first;  // columns of the token
  int second;
};

template <class T, int kWidth>
__device__ Pack<T, kWidth> load(const T* token, int column) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(token + column);
}
template <class T, int kWidth>
__device__ void store(T* token, int column, const float (&values)[kWidth]) {
  *reinterpret_cast<Pack<T, kWidth>*>(token + column) = rounded<T, kWidth>(values);
}

template <class T, int kWidth>
__device__ float squares_of(const Pack<T, kWidth>& a, const Pack<T, kWidth>& b) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    sum = fmaf(load_float(&a.values[i]), load_float(&a.values[i]), sum);
    sum = fmaf(load_float(&b.values[i]), load_float(&b.values[i]), sum);
  }
  return sum;
}

// Shared memory of a token: angles, a number of every pair of packs, a result of every row.
struct Shared {
  float* cosines;
  float* sines;
  float* numbers;
  float* results;

  __device__ Shared(const Layout& layout, int pairs, float* memory) {
    cosines = memory;
    sines = cosines + layout.half;
    numbers = sines + layout.half;
    results = numbers + pairs;
  }
};

i64 shared_bytes(const Layout& layout, int kWidth) {
  const int pairs = layout.heads * layout.half / kWidth;
  const int rows = layout.per_head ? layout.heads : 2;
  return (2 * layout.half + pairs + rows) * i64{sizeof(float)};
}

__device__ void fill_angles(const Layout& layout, i64 token, const i32* document_start, const Shared& shared,
                            int thread) {
  const i64 position = token % layout.sequence - document_start[token];
  for (int i = thread; i < layout.half; i += kThreads) {
    float sine;
    float cosine;
    sincosf(static_cast<float>(position) * layout.frequencies[i], &sine, &cosine);
    shared.cosines[i] = cosine * layout.scale;
    shared.sines[i] = sine * layout.scale;
  }
}

// Calls result(row, sum of its numbers, columns) with the row's warp; lane 0's is the one to keep.
template <class Result>
__device__ void sum_rows(const Layout& layout, int pairs_of_head, const Shared& shared, int warp,
                         const Result& result) {
  for (int row = warp; row < layout.rows(); row += kWarps) {
    float sum = 0;
    for (int i = layout.first_head(row) * pairs_of_head + lane_index();
         i < layout.end_head(row) * pairs_of_head; i += kWarp) {
      sum += shared.numbers[i];
    }
    const int columns = (layout.end_head(row) - layout.first_head(row)) * 2 * layout.half;
    result(row, kernels::warp_sum(sum), static_cast<float>(columns));
  }
}

template <class T, int kWidth>
__device__ void copy_values(const Layout& layout, const T* from, T* to) {
  if (from != to) {
    for (int c = layout.value_column + static_cast<int>(threadIdx.x) * kWidth; c < layout.width;
         c += kThreads * kWidth) {
      *reinterpret_cast<Pack<T, kWidth>*>(to + c) = load<T, kWidth>(from, c);
    }
  }
}

template <class T>
struct ForwardParams {
  Layout layout;
  float eps;
  const T* qkv;
  const float* q_weight;
  const float* k_weight;
  const i32* document_start;
  T* out;  // may be qkv
  float* rstd;
};

template <class T, int kWidth>
__device__ void rotate(const Pack<T, kWidth>& a, const Pack<T, kWidth>& b, const Place<kWidth>& place,
                       const float* weight, int half, float scale, const Shared& shared, T* out) {
  float weight1[kWidth];
  float weight2[kWidth];
  float cosine[kWidth];
  float sine[kWidth];
  kernels::load_floats(weight, weight1);
  kernels::load_floats(weight + half, weight2);
  kernels::load_floats(shared.cosines + place.angle, cosine);
  kernels::load_floats(shared.sines + place.angle, sine);
  float first[kWidth];
  float second[kWidth];
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const float x1 = load_float(&a.values[i]) * scale * weight1[i];
    const float x2 = load_float(&b.values[i]) * scale * weight2[i];
    first[i] = x1 * cosine[i] - x2 * sine[i];
    second[i] = x2 * cosine[i] + x1 * sine[i];
  }
  store<T, kWidth>(out, place.first, first);
  store<T, kWidth>(out, place.second, second);
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    qk_norm_rope_kernel(const __grid_constant__ ForwardParams<T> params) {
  extern __shared__ float memory[];
  const Layout& layout = params.layout;
  const int thread = static_cast<int>(threadIdx.x);
  const int pairs_of_head = layout.half / kWidth;
  const int pairs = layout.heads * pairs_of_head;
  const i64 token = blockIdx.x;
  const T* qkv = params.qkv + token * layout.width;
  T* out = params.out + token * layout.width;
  const Shared shared(layout, pairs, memory);
  Pack<T, kWidth> a;
  Pack<T, kWidth> b;
  const Place<kWidth> own(layout, thread < pairs ? thread : 0);
  if (thread < pairs) {
    a = load<T, kWidth>(qkv, own.first);
    b = load<T, kWidth>(qkv, own.second);
  }
  copy_values<T, kWidth>(layout, qkv, out);
  fill_angles(layout, token, params.document_start, shared, thread);
  if (thread < pairs) {
    shared.numbers[thread] = squares_of<T, kWidth>(a, b);
  }
  for (int pair = thread + kThreads; pair < pairs; pair += kThreads) {
    const Place<kWidth> place(layout, pair);
    shared.numbers[pair] =
        squares_of<T, kWidth>(load<T, kWidth>(qkv, place.first), load<T, kWidth>(qkv, place.second));
  }
  __syncthreads();
  sum_rows(layout, pairs_of_head, shared, thread / kWarp, [&](int row, float sum, float columns) {
    const float scale = 1.0F / sqrtf(sum / columns + params.eps);
    if (lane_index() == 0) {
      shared.results[row] = scale;
      params.rstd[token * layout.rows() + row] = scale;
    }
  });
  __syncthreads();
  const auto weight_of = [&](const Place<kWidth>& place) {
    return (place.head < layout.query_heads ? params.q_weight : params.k_weight) +
           layout.weight_column(place.head) + place.angle;
  };
  if (thread < pairs) {
    rotate<T, kWidth>(a, b, own, weight_of(own), layout.half, shared.results[layout.row_of(own.head)], shared,
                      out);
  }
  for (int pair = thread + kThreads; pair < pairs; pair += kThreads) {
    const Place<kWidth> place(layout, pair);
    rotate<T, kWidth>(load<T, kWidth>(qkv, place.first), load<T, kWidth>(qkv, place.second), place,
                      weight_of(place), layout.half, shared.results[layout.row_of(place.head)], shared, out);
  }
}

template <class T>
struct BackwardParams {
  Layout layout;
  i64 tokens;
  const T* drotated;
  const T* qkv;
  const float* q_weight;
  const float* k_weight;
  const float* rstd;
  const i32* document_start;
  T* dqkv;         // may be drotated
  float* partial;  // [blocks, value_column]: sums of the gradients of weights, by column
};

// The gradient of what was rotated, from that of the result.
template <class T, int kWidth>
__device__ void rotate_back(const Pack<T, kWidth>& da, const Pack<T, kWidth>& db, int angle,
                            const Shared& shared, float (&first)[kWidth], float (&second)[kWidth]) {
  float cosine[kWidth];
  float sine[kWidth];
  kernels::load_floats(shared.cosines + angle, cosine);
  kernels::load_floats(shared.sines + angle, sine);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const float y1 = load_float(&da.values[i]);
    const float y2 = load_float(&db.values[i]);
    first[i] = y1 * cosine[i] + y2 * sine[i];
    second[i] = y2 * cosine[i] - y1 * sine[i];
  }
}

// sum of dy weight x over a pair of packs.
template <class T, int kWidth>
__device__ float dot_of(const float (&dy1)[kWidth], const float (&dy2)[kWidth], const Pack<T, kWidth>& a,
                        const Pack<T, kWidth>& b, const float* weight, int half) {
  float weight1[kWidth];
  float weight2[kWidth];
  kernels::load_floats(weight, weight1);
  kernels::load_floats(weight + half, weight2);
  float dot = 0;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    dot = fmaf(dy1[i] * weight1[i], load_float(&a.values[i]), dot);
    dot = fmaf(dy2[i] * weight2[i], load_float(&b.values[i]), dot);
  }
  return dot;
}

// One pack of dx = scale (dy weight - x mean), and its part of dweight += dy x scale.
template <class T, int kWidth>
__device__ void finish(const float (&dy)[kWidth], const Pack<T, kWidth>& x, const float* weights, float scale,
                       float mean, float* sums, T* dqkv, int column) {
  float weight[kWidth];
  kernels::load_floats(weights, weight);
  float values[kWidth];
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const float value = load_float(&x.values[i]);
    values[i] = scale * (dy[i] * weight[i] - value * mean);
    sums[i] = fmaf(dy[i], value * scale, sums[i]);
  }
  store<T, kWidth>(dqkv, column, values);
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads, QkNormRopeBackward::kBlocksPerSm)
    qk_norm_rope_backward_kernel(const __grid_constant__ BackwardParams<T> params) {
  extern __shared__ float memory[];
  const Layout& layout = params.layout;
  const int thread = static_cast<int>(threadIdx.x);
  const int half = layout.half;
  const int pairs_of_head = half / kWidth;
  const int pairs = layout.heads * pairs_of_head;
  float* partial = params.partial + static_cast<i64>(blockIdx.x) * layout.value_column;
  float sums[2][kWidth] = {};  // of the own pair; those of others lie in `partial` from the start
  for (int pair = thread + kThreads; pair < pairs; pair += kThreads) {
    const Place<kWidth> place(layout, pair);
    for (int i = 0; i < kWidth; ++i) {
      partial[place.first + i] = 0;
      partial[place.second + i] = 0;
    }
  }
  const Place<kWidth> own(layout, thread < pairs ? thread : 0);
  const auto weight_of = [&](const Place<kWidth>& place) {
    return (place.head < layout.query_heads ? params.q_weight : params.k_weight) +
           layout.weight_column(place.head) + place.angle;
  };
  const float* own_weight = weight_of(own);
  const Shared shared(layout, pairs, memory);
  for (i64 token = blockIdx.x; token < params.tokens; token += gridDim.x) {
    const T* drotated = params.drotated + token * layout.width;
    const T* qkv = params.qkv + token * layout.width;
    const float* rstd = params.rstd + token * layout.rows();
    T* dqkv = params.dqkv + token * layout.width;
    Pack<T, kWidth> da;
    Pack<T, kWidth> db;
    Pack<T, kWidth> a;
    Pack<T, kWidth> b;
    if (thread < pairs) {
      da = load<T, kWidth>(drotated, own.first);
      db = load<T, kWidth>(drotated, own.second);
      a = load<T, kWidth>(qkv, own.first);
      b = load<T, kWidth>(qkv, own.second);
    }
    fill_angles(layout, token, params.document_start, shared, thread);
    __syncthreads();
    float dy1[kWidth];
    float dy2[kWidth];
    for (int pair = thread + kThreads; pair < pairs; pair += kThreads) {
      const Place<kWidth> place(layout, pair);
      rotate_back<T, kWidth>(load<T, kWidth>(drotated, place.first), load<T, kWidth>(drotated, place.second),
                             place.angle, shared, dy1, dy2);
      shared.numbers[pair] = dot_of<T, kWidth>(dy1, dy2, load<T, kWidth>(qkv, place.first),
                                               load<T, kWidth>(qkv, place.second), weight_of(place), half);
    }
    if (thread < pairs) {
      rotate_back<T, kWidth>(da, db, own.angle, shared, dy1, dy2);
      shared.numbers[thread] = dot_of<T, kWidth>(dy1, dy2, a, b, own_weight, half);
    }
    __syncthreads();
    sum_rows(layout, pairs_of_head, shared, thread / kWarp, [&](int row, float sum, float columns) {
      if (lane_index() == 0) {
        shared.results[row] = sum * rstd[row] * rstd[row] / columns;
      }
    });
    __syncthreads();
    if (thread < pairs) {  // dy1 and dy2 are still those of the own pair
      const int row = layout.row_of(own.head);
      finish<T, kWidth>(dy1, a, own_weight, rstd[row], shared.results[row], sums[0], dqkv, own.first);
      finish<T, kWidth>(dy2, b, own_weight + half, rstd[row], shared.results[row], sums[1], dqkv, own.second);
    }
    for (int pair = thread + kThreads; pair < pairs; pair += kThreads) {
      const Place<kWidth> place(layout, pair);
      const int row = layout.row_of(place.head);
      rotate_back<T, kWidth>(load<T, kWidth>(drotated, place.first), load<T, kWidth>(drotated, place.second),
                             place.angle, shared, dy1, dy2);
      finish<T, kWidth>(dy1, load<T, kWidth>(qkv, place.first), weight_of(place), rstd[row],
                        shared.results[row], partial + place.first, dqkv, place.first);
      finish<T, kWidth>(dy2, load<T, kWidth>(qkv, place.second), weight_of(place) + half, rstd[row],
                        shared.results[row], partial + place.second, dqkv, place.second);
    }
    copy_values<T, kWidth>(layout, drotated, dqkv);
    __syncthreads();  // angles and results are read until here
  }
  if (thread < pairs) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      partial[own.first + i] = sums[0][i];
      partial[own.second + i] = sums[1][i];
    }
  }
}

template <class T, class Params>
bool has_packs(const Params& params, std::initializer_list<const T*> matrices) {
  return params.layout.half % kPackWidth<T> == 0 && kernels::are_packs<T>(params.layout.width, matrices) &&
         kernels::is_aligned(params.q_weight) && kernels::is_aligned(params.k_weight);
}

void allow_shared(const void* kernel, i64 bytes) {
  if (bytes > i64{48} << 10U) {
    WYCH_CUDA_CALL(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  }
}

}  // namespace

void QkNormRope::launch_cuda(const ir::CudaContext& context) const {
  const unsigned blocks = blocks_for(context.input(0).dim(0), 1);
  if (blocks == 0) {
    return;
  }
  kernels::dispatch_cuda(context.input(0).type->dtype, [&]<class T>(T) {
    const ForwardParams<T> params{layout_of(shape_),
                                  static_cast<float>(eps_),
                                  device_cast<const T>(context.input(0)),
                                  context.input(1).as<float>(),
                                  context.input(2).as<float>(),
                                  context.input(3).as<i32>(),
                                  device_cast<T>(context.output(0)),
                                  context.output(1).as<float>()};
    const auto launch = [&]<int kWidth>(std::integral_constant<int, kWidth>) {
      const i64 bytes = shared_bytes(params.layout, kWidth);
      allow_shared(reinterpret_cast<const void*>(&qk_norm_rope_kernel<T, kWidth>), bytes);
      qk_norm_rope_kernel<T, kWidth>
          <<<blocks, kThreads, static_cast<std::size_t>(bytes), context.stream>>>(params);
      WYCH_CUDA_LAUNCHED();
    };
    if (has_packs<T>(params, {params.qkv, params.out})) {
      launch(std::integral_constant<int, kPackWidth<T>>());
    } else {
      launch(std::integral_constant<int, 1>());
    }
  });
}

void QkNormRopeBackward::launch_cuda(const ir::CudaContext& context) const {
  const i64 tokens = context.input(0).dim(0);
  const i64 blocks = cuda_blocks(tokens, context.target);
  auto* partial = reinterpret_cast<float*>(context.workspace);
  const HeadLayout& heads = shape_.rope.layout;
  kernels::dispatch_cuda(context.input(0).type->dtype, [&]<class T>(T) {
    const BackwardParams<T> params{layout_of(shape_),
                                   tokens,
                                   device_cast<const T>(context.input(0)),
                                   device_cast<const T>(context.input(1)),
                                   context.input(2).as<float>(),
                                   context.input(3).as<float>(),
                                   context.input(4).as<float>(),
                                   context.input(5).as<i32>(),
                                   device_cast<T>(context.output(0)),
                                   partial};
    const auto launch = [&]<int kWidth>(std::integral_constant<int, kWidth>) {
      const i64 bytes = shared_bytes(params.layout, kWidth);
      allow_shared(reinterpret_cast<const void*>(&qk_norm_rope_backward_kernel<T, kWidth>), bytes);
      qk_norm_rope_backward_kernel<T, kWidth>
          <<<blocks_for(blocks, 1), kThreads, static_cast<std::size_t>(bytes), context.stream>>>(params);
      WYCH_CUDA_LAUNCHED();
    };
    if (blocks > 0 && has_packs<T>(params, {params.drotated, params.qkv, params.dqkv})) {
      launch(std::integral_constant<int, kPackWidth<T>>());
    } else if (blocks > 0) {
      launch(std::integral_constant<int, 1>());
    }
  });
  const QkNormShape norm = shape_.norm();
  kernels::launch_sum_columns(context.stream, {.chunks = blocks,
                                               .stride = heads.value_column(),
                                               .repeats = static_cast<int>(norm.query_rows()),
                                               .columns = static_cast<int>(norm.query_columns()),
                                               .partial = partial,
                                               .accumulate = context.accumulate,
                                               .sums = context.output(1).as<float>()});
  kernels::launch_sum_columns(context.stream, {.chunks = blocks,
                                               .stride = heads.value_column(),
                                               .repeats = static_cast<int>(norm.key_rows()),
                                               .columns = static_cast<int>(norm.key_columns()),
                                               .partial = partial + heads.key_column(),
                                               .accumulate = false,
                                               .sums = context.output(2).as<float>()});
}

}  // namespace wych::ops
