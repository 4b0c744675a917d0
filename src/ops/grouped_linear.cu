// bfloat16 on Hopper, where the shape allows it: kernels/cuda_grouped_sm90.h. Everything else: cuda_gemm.h.
#include "kernels/cuda_gemm.h"
#include "kernels/cuda_grouped_sm90.h"
#include "kernels/cuda_launch.cuh"
#include "ops/grouped_linear.h"

namespace wych::ops {
namespace {

using kernels::device_cast;
using kernels::GroupedShape;

using Half = __nv_bfloat16;

bool use_sm90(const ir::CudaContext& context, const GroupedShape& shape) {
  return context.input(0).type->dtype == DType::kBF16 &&
         kernels::grouped_sm90_supports(context.target, shape);
}

}  // namespace

void GroupedLinear::launch_cuda(const ir::CudaContext& context) const {
  const ir::View& w = context.input(1);
  const GroupedShape shape{w.dim(0), context.input(0).dim(0), w.dim(1), w.dim(2), alignment_};
  const i32* offsets = context.input(2).as<i32>();
  if (use_sm90(context, shape)) {
    kernels::grouped_sm90_forward(context.stream, context.target, shape, offsets,
                                  device_cast<Half>(context.input(0)), device_cast<Half>(w),
                                  device_cast<Half>(context.output(0)));
    return;
  }
  kernels::dispatch_cuda(w.type->dtype, [&]<class T>(T) {
    kernels::cuda_grouped_gemm(context.stream, true, shape.groups, offsets, shape.rows, shape.n, shape.k,
                               device_cast<T>(context.input(0)), device_cast<T>(w),
                               device_cast<T>(context.output(0)));
  });
}

void GroupedLinearDx::launch_cuda(const ir::CudaContext& context) const {
  const ir::View& w = context.input(1);
  const GroupedShape shape{w.dim(0), context.input(0).dim(0), w.dim(1), w.dim(2), alignment_};
  const i32* offsets = context.input(2).as<i32>();
  if (use_sm90(context, shape)) {
    kernels::grouped_sm90_dx(context.stream, context.target, shape, offsets,
                             device_cast<Half>(context.input(0)), device_cast<Half>(w),
                             device_cast<Half>(context.output(0)));
    return;
  }
  kernels::dispatch_cuda(w.type->dtype, [&]<class T>(T) {
    kernels::cuda_grouped_gemm(context.stream, false, shape.groups, offsets, shape.rows, shape.k, shape.n,
                               device_cast<T>(context.input(0)), device_cast<T>(w),
                               device_cast<T>(context.output(0)));
  });
}

void GroupedLinearDw::launch_cuda(const ir::CudaContext& context) const {
  const ir::View& dy = context.input(0);
  const ir::View& x = context.input(1);
  const GroupedShape shape{context.output(0).dim(0), dy.dim(0), dy.dim(1), x.dim(1), alignment_};
  const i32* offsets = context.input(2).as<i32>();
  float* dw = context.output(0).as<float>();
  if (use_sm90(context, shape)) {
    kernels::grouped_sm90_dw(context.stream, context.target, shape, offsets, device_cast<Half>(dy),
                             device_cast<Half>(x), context.accumulate, dw);
    return;
  }
  kernels::dispatch_cuda(dy.type->dtype, [&]<class T>(T) {
    kernels::cuda_grouped_dw(context.stream, shape.groups, offsets, shape.n, shape.k, device_cast<T>(dy),
                             device_cast<T>(x), context.accumulate, dw);
  });
}

}  // namespace wych::ops
