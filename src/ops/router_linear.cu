// float32: kernels/cuda_gemm.h. bfloat16: float32 operands are split into parts and one product by cuBLASLt
// runs over all of them (router_linear.h). Bytes beside the products: each split reads 4 an element and
// writes 6, the sum of the product's parts reads 12 an element and writes 4.
#include "base/cuda_target.h"
#include "device/cuda_matmul.h"
#include "kernels/cuda_gemm.h"
#include "kernels/cuda_launch.cuh"
#include "ops/router_linear.h"

namespace wych::ops {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 3;  // of parts, in every operand that is split

// Where element [row, column] of block `b` lies: row * row_stride + b * block_stride + column. Blocks lie
// side by side, [rows, 3 columns], or below each other, [3 rows, columns].
struct Blocks {
  i64 rows;
  i64 columns;
  i64 row_stride;
  i64 block_stride;

  static Blocks beside(i64 rows, i64 columns) { return {rows, columns, kBlocks * columns, columns}; }
  static Blocks below(i64 rows, i64 columns) { return {rows, columns, columns, rows * columns}; }

  [[nodiscard]] __host__ __device__ i64 elements() const { return rows * columns; }
  __device__ i64 first_at(i64 element) const { return element / columns * row_stride + element % columns; }
};

// Which part of the value a block holds: 0 is the largest.
struct Order {
  int part[kBlocks];
};
constexpr Order kAllParts{{0, 1, 2}};
// dlogits weight ~ d0 w0 + d0 w1 + d1 w0; what is left out is 2^-16 of it.
constexpr Order kLeftOfDx{{0, 0, 1}};
constexpr Order kRightOfDx{{0, 1, 0}};

__global__ void __launch_bounds__(kThreads)
    split_kernel(Blocks blocks, Order order, const float* __restrict__ from, __nv_bfloat16* __restrict__ to) {
  const i64 element = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x;
  if (element >= blocks.elements()) {
    return;
  }
  float rest = from[element];
  __nv_bfloat16 parts[kBlocks];
#pragma unroll
  for (int p = 0; p < kBlocks; ++p) {
    parts[p] = __float2bfloat16_rn(rest);
    rest -= __bfloat162float(parts[p]);  // exact
  }
  const i64 first = blocks.first_at(element);
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    to[first + b * blocks.block_stride] = parts[order.part[b]];
  }
}

// The smallest part first.
template <bool kAccumulate>
__global__ void __launch_bounds__(kThreads)
    sum_kernel(Blocks blocks, const float* __restrict__ product, float* __restrict__ to) {
  const i64 element = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x;
  if (element >= blocks.elements()) {
    return;
  }
  const float* first = product + blocks.first_at(element);
  const float sum = first[0] + (first[blocks.block_stride] + first[2 * blocks.block_stride]);
  to[element] = kAccumulate ? to[element] + sum : sum;
}

class Split {
 public:
  Split(const ir::CudaContext& context, const RouterWorkspace& workspace)
      : context_(context),
        parts_(reinterpret_cast<__nv_bfloat16*>(context.workspace + workspace.parts)),
        others_(reinterpret_cast<__nv_bfloat16*>(context.workspace + workspace.others)),
        product_(reinterpret_cast<float*>(context.workspace + workspace.product)) {}

  [[nodiscard]] __nv_bfloat16* parts() const { return parts_; }
  [[nodiscard]] __nv_bfloat16* others() const { return others_; }
  [[nodiscard]] float* product() const { return product_; }

  void split(const Blocks& blocks, const Order& order, int input, __nv_bfloat16* to) const {
    if (blocks.elements() > 0) {
      split_kernel<<<kernels::blocks_for(blocks.elements(), kThreads), kThreads, 0, context_.stream>>>(
          blocks, order, context_.input(input).as<float>(), to);
      WYCH_CUDA_LAUNCHED();
    }
  }

  // Dense op(A) op(B) -> C[m, n].
  void multiply(bool trans_a, bool trans_b, i64 m, i64 n, i64 k, const void* a, const void* b, void* c,
                DType out) const {
    const device::MatmulShape shape{trans_a,         trans_b,         m, n,     k,
                                    trans_a ? m : k, trans_b ? k : n, n, false, out};
    context_.matmul->multiply(context_.stream, shape, a, b, c, context_.workspace);
  }

  void sum(const Blocks& blocks) const {
    if (blocks.elements() == 0) {
      return;
    }
    const unsigned grid = kernels::blocks_for(blocks.elements(), kThreads);
    float* to = context_.output(0).as<float>();
    if (context_.accumulate) {
      sum_kernel<true><<<grid, kThreads, 0, context_.stream>>>(blocks, product_, to);
    } else {
      sum_kernel<false><<<grid, kThreads, 0, context_.stream>>>(blocks, product_, to);
    }
    WYCH_CUDA_LAUNCHED();
  }

 private:
  const ir::CudaContext& context_;
  __nv_bfloat16* parts_;
  __nv_bfloat16* others_;
  float* product_;
};

void float_product(const ir::CudaContext& context, bool trans_a, bool trans_b, i64 m, i64 n, i64 k) {
  kernels::cuda_gemm(context.stream, trans_a, trans_b, m, n, k, context.input(0).as<float>(), trans_a ? m : k,
                     context.input(1).as<float>(), trans_b ? k : n, context.accumulate,
                     context.output(0).as<float>(), n);
}

}  // namespace

void RouterLinear::launch_cuda(const ir::CudaContext& context) const {
  const i64 tokens = context.input(0).dim(0);
  const i64 width = context.input(0).dim(1);
  const i64 experts = context.input(1).dim(0);
  if (context.input(0).type->dtype == DType::kF32) {
    float_product(context, false, true, tokens, experts, width);
    return;
  }
  const Split split(context, router_workspace(experts * width, 0, tokens * experts));
  split.split(Blocks::below(experts, width), kAllParts, 1, split.parts());
  split.multiply(false, true, tokens, kBlocks * experts, width, context.input(0).data, split.parts(),
                 split.product(), DType::kF32);
  split.sum(Blocks::beside(tokens, experts));
}

void RouterLinearDx::launch_cuda(const ir::CudaContext& context) const {
  const i64 tokens = context.input(0).dim(0);
  const i64 experts = context.input(0).dim(1);
  const i64 width = context.input(1).dim(1);
  if (activation_ == DType::kF32) {
    float_product(context, false, false, tokens, width, experts);
    return;
  }
  const Split split(context, router_workspace(tokens * experts, experts * width, 0));
  split.split(Blocks::beside(tokens, experts), kLeftOfDx, 0, split.parts());
  split.split(Blocks::below(experts, width), kRightOfDx, 1, split.others());
  split.multiply(false, false, tokens, width, kBlocks * experts, split.parts(), split.others(),
                 context.output(0).data, DType::kBF16);
}

void RouterLinearDw::launch_cuda(const ir::CudaContext& context) const {
  const i64 tokens = context.input(0).dim(0);
  const i64 experts = context.input(0).dim(1);
  const i64 width = context.input(1).dim(1);
  if (context.input(1).type->dtype == DType::kF32) {
    float_product(context, true, false, experts, width, tokens);
    return;
  }
  const Split split(context, router_workspace(tokens * experts, 0, experts * width));
  split.split(Blocks::beside(tokens, experts), kAllParts, 0, split.parts());
  split.multiply(true, false, kBlocks * experts, width, tokens, split.parts(), context.input(1).data,
                 split.product(), DType::kF32);
  split.sum(Blocks::below(experts, width));
}

}  // namespace wych::ops
