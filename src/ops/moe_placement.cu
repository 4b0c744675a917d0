// A stable counting sort in chunks of kCudaChunk routes, without atomics. A warp walks its chunk 32 routes at
// a time and ranks them among those of the same expert; the chunks' histograms become prefix sums over
// chunks, then segments over experts; every route adds up where it goes. About 20 bytes a route, 12 an expert
// and chunk, 4 a pad row.
#include "kernels/cuda_rows.cuh"
#include "ops/moe_placement.h"

namespace wych::ops {
namespace {

using kernels::blocks_for;
using kernels::kRowsPerBlock;
using kernels::kRowThreads;
using kernels::kWarp;
using kernels::lane_index;
using kernels::warp_inclusive_sum;

constexpr i64 kChunk = MoePlacement::kCudaChunk;
static_assert(kChunk % kWarp == 0);

struct Params {
  i64 routes;
  i64 chunks;
  i64 experts;
  i64 alignment;
  const i32* indices;
  i32* before;  // [chunks, experts]: routes of this chunk, then of the chunks before it
  i32* offsets;
  i32* counts;
  i32* row_of_route;  // the rank among the chunk's routes of the same expert until the last kernel
  i32* route_of_row;
};

// A warp a chunk.
__global__ void __launch_bounds__(kRowThreads) moe_placement_rank_kernel(const Params params) {
  const i64 chunk = kernels::warp_row();
  if (chunk >= params.chunks) {
    return;
  }
  i32* count = params.before + chunk * params.experts;
  for (i64 expert = lane_index(); expert < params.experts; expert += kWarp) {
    count[expert] = 0;
  }
  __syncwarp();
  const unsigned lower_lanes = (1U << static_cast<unsigned>(lane_index())) - 1U;
  for (i64 first = chunk * kChunk; first < (chunk + 1) * kChunk; first += kWarp) {
    const i64 route = first + lane_index();
    const bool exists = route < params.routes;
    const i32 expert = exists ? params.indices[route] : -1;
    const unsigned same = __match_any_sync(0xffffffffU, expert);
    const i32 earlier = exists ? count[expert] : 0;
    __syncwarp();  // all have read before one of them adds
    if (exists) {
      params.row_of_route[route] = earlier + __popc(same & lower_lanes);
      if ((same & lower_lanes) == 0) {
        count[expert] = earlier + __popc(same);
      }
    }
    __syncwarp();
  }
}

// A warp an expert: `before` over chunks, and counts.
__global__ void __launch_bounds__(kRowThreads) moe_placement_chunks_kernel(const Params params) {
  const i64 expert = kernels::warp_row();
  if (expert >= params.experts) {
    return;
  }
  i32 total = 0;
#pragma unroll 4
  for (i64 first = 0; first < params.chunks; first += kWarp) {
    const i64 chunk = first + lane_index();
    i32* at = params.before + chunk * params.experts + expert;
    const i32 count = chunk < params.chunks ? *at : 0;
    const i32 sum = warp_inclusive_sum(count);
    if (chunk < params.chunks) {
      *at = total + sum - count;
    }
    total += __shfl_sync(0xffffffffU, sum, kWarp - 1);
  }
  if (lane_index() == 0) {
    params.counts[expert] = total;
  }
}

// One warp: offsets.
__global__ void __launch_bounds__(kWarp) moe_placement_segments_kernel(const Params params) {
  i32 end = 0;
  for (i64 first = 0; first < params.experts; first += kWarp) {
    const i64 expert = first + lane_index();
    const bool exists = expert < params.experts;
    const i32 rows = exists ? static_cast<i32>(round_up(params.counts[expert], params.alignment)) : 0;
    const i32 sum = warp_inclusive_sum(rows);
    if (exists) {
      params.offsets[expert] = end + sum - rows;
    }
    end += __shfl_sync(0xffffffffU, sum, kWarp - 1);
  }
  if (lane_index() == 0) {
    params.offsets[params.experts] = end;
  }
}

// A thread a route; behind them a thread for each of the alignment - 1 rows that may pad a segment.
__global__ void __launch_bounds__(kRowThreads) moe_placement_place_kernel(const Params params) {
  const i64 index = static_cast<i64>(blockIdx.x) * kRowThreads + threadIdx.x;
  if (index < params.routes) {
    const i32 expert = params.indices[index];
    const i32 row = params.offsets[expert] + params.before[index / kChunk * params.experts + expert] +
                    params.row_of_route[index];
    params.row_of_route[index] = row;
    params.route_of_row[row] = static_cast<i32>(index);
    return;
  }
  const i64 pads = params.alignment - 1;
  const i64 pad = index - params.routes;
  if (pad >= params.experts * pads) {
    return;
  }
  const i64 expert = pad / pads;
  const i64 row = i64{params.offsets[expert]} + params.counts[expert] + pad % pads;
  if (row < params.offsets[expert + 1]) {
    params.route_of_row[row] = -1;
  }
}

}  // namespace

void MoePlacement::launch_cuda(const ir::CudaContext& context) const {
  const i64 routes = context.input(0).elements();
  const i64 chunks = ceil_div(routes, kChunk);
  const Params params = {routes,
                         chunks,
                         experts_,
                         alignment_,
                         context.input(0).as<i32>(),
                         reinterpret_cast<i32*>(context.workspace),
                         context.output(0).as<i32>(),
                         context.output(1).as<i32>(),
                         context.output(2).as<i32>(),
                         context.output(3).as<i32>()};
  if (chunks > 0) {
    moe_placement_rank_kernel<<<blocks_for(chunks, kRowsPerBlock), kRowThreads, 0, context.stream>>>(params);
    WYCH_CUDA_LAUNCHED();
  }
  moe_placement_chunks_kernel<<<blocks_for(experts_, kRowsPerBlock), kRowThreads, 0, context.stream>>>(
      params);
  WYCH_CUDA_LAUNCHED();
  moe_placement_segments_kernel<<<1, kWarp, 0, context.stream>>>(params);
  WYCH_CUDA_LAUNCHED();
  if (routes > 0) {
    const unsigned blocks = blocks_for(routes + experts_ * (alignment_ - 1), kRowThreads);
    moe_placement_place_kernel<<<blocks, kRowThreads, 0, context.stream>>>(params);
    WYCH_CUDA_LAUNCHED();
  }
}

}  // namespace wych::ops
