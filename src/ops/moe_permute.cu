// One warp a row of the result, in the order in which rows lie: 8 bytes an element, 4 where the k rows of a
// token find it in the cache.
#include "kernels/cuda_rows.cuh"
#include "ops/moe_permute.h"

namespace wych::ops {

void MoePermute::launch_cuda(const ir::CudaContext& context) const {
  const kernels::GatherRoutedParams params = {
      context.input(0).dim(1),      context.output(0).dim(0),
      context.input(2).dim(1),      context.input(3).as<i32>() + context.input(3).dim(0) - 1,
      context.input(1).as<i32>(),   nullptr,
      context.input(0).as<float>(), context.output(0).as<float>()};
  kernels::launch_gather_routed<false>(context.stream, params);
}

}  // namespace wych::ops
