// One warp a token and its k rows, kBatch of which are on their way at a time; they are added in the order of
// slots. Bytes: each used row read once, each token's row written once.
#include "kernels/cuda_rows.cuh"
#include "ops/moe_combine.h"

namespace wych::ops {
namespace {

using kernels::kPackWidth;
using kernels::kRowsPerBlock;
using kernels::kRowThreads;
using kernels::kWarp;
using kernels::lane_index;
using kernels::load_float;
using kernels::Pack;

constexpr int kBatch = 4;

template <class T>
struct CombineParams {
  i64 tokens;
  int k;
  int width;
  const T* rows;
  const i32* row_of_route;
  T* out;
};

template <class T, int kWidth>
__global__ void __launch_bounds__(kRowThreads) moe_combine_kernel(const CombineParams<T> params) {
  const i64 token = kernels::warp_row();
  if (token >= params.tokens) {
    return;
  }
  const int packs = params.width / kWidth;
  const auto* rows = reinterpret_cast<const Pack<T, kWidth>*>(params.rows);
  auto* out = reinterpret_cast<Pack<T, kWidth>*>(params.out) + token * packs;
  const i32* row_of_slot = params.row_of_route + token * params.k;
  for (int column = lane_index(); column < packs; column += kWarp) {
    float sums[kWidth];
    for (int first = 0; first < params.k; first += kBatch) {
      Pack<T, kWidth> row[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (first + b < params.k) {
          row[b] = rows[static_cast<i64>(row_of_slot[first + b]) * packs + column];
        }
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (first + b < params.k) {
#pragma unroll
          for (int i = 0; i < kWidth; ++i) {
            const float value = load_float(&row[b].values[i]);
            sums[i] = b == 0 && first == 0 ? value : sums[i] + value;
          }
        }
      }
    }
    out[column] = kernels::rounded<T, kWidth>(sums);
  }
}

}  // namespace

void MoeCombine::launch_cuda(const ir::CudaContext& context) const {
  const i64 tokens = context.output(0).dim(0);
  const unsigned blocks = kernels::blocks_for(tokens, kRowsPerBlock);
  if (blocks == 0) {
    return;
  }
  kernels::dispatch_cuda(context.input(0).type->dtype, [&]<class T>(T) {
    const CombineParams<T> params = {tokens,
                                     static_cast<int>(context.input(1).dim(1)),
                                     static_cast<int>(context.input(0).dim(1)),
                                     kernels::device_cast<T>(context.input(0)),
                                     context.input(1).as<i32>(),
                                     kernels::device_cast<T>(context.output(0))};
    if (kernels::are_packs<T>(params.width, {params.rows, params.out})) {
      moe_combine_kernel<T, kPackWidth<T>><<<blocks, kRowThreads, 0, context.stream>>>(params);
    } else {
      moe_combine_kernel<T, 1><<<blocks, kRowThreads, 0, context.stream>>>(params);
    }
  });
  WYCH_CUDA_LAUNCHED();
}

}  // namespace wych::ops
