// Copies of evenly spaced runs of bytes, by the driver; every byte is read and written once.
#include "kernels/cuda_launch.cuh"
#include "ops/slice.h"

namespace wych::ops {
namespace {

// The driver's limit on the distance between the rows of a copy (cudaDeviceProp::memPitch of every device).
constexpr i64 kMaxPitch = 0x7fffffff;

// A tensor seen from one axis: `outer` blocks of `bytes` contiguous bytes.
struct Blocks {
  i64 outer;
  i64 bytes;
};

Blocks blocks_of(const ir::TensorType& type, int axis) {
  Blocks blocks{1, dtype_bytes(type.dtype)};
  for (int i = 0; i < type.shape.rank(); ++i) {
    (i < axis ? blocks.outer : blocks.bytes) *= type.shape[i];
  }
  return blocks;
}

// Copies the blocks of the narrower of two tensors from or to a place inside those of the wider one.
void copy_blocks(CUstream_st* stream, const std::byte* from, i64 from_stride, std::byte* to, i64 to_stride,
                 const Blocks& narrow) {
  if (narrow.outer == 0 || narrow.bytes == 0) {
    return;
  }
  const auto bytes = static_cast<std::size_t>(narrow.bytes);
  if (narrow.outer > 1 && from_stride <= kMaxPitch && to_stride <= kMaxPitch) {
    WYCH_CUDA_CALL(cudaMemcpy2DAsync(
        to, static_cast<std::size_t>(to_stride), from, static_cast<std::size_t>(from_stride), bytes,
        static_cast<std::size_t>(narrow.outer), cudaMemcpyDeviceToDevice, stream));
    return;
  }
  for (i64 i = 0; i < narrow.outer; ++i) {  // one block, or few because they are gigabytes apart
    WYCH_CUDA_CALL(
        cudaMemcpyAsync(to + i * to_stride, from + i * from_stride, bytes, cudaMemcpyDeviceToDevice, stream));
  }
}

}  // namespace

void Slice::launch_cuda(const ir::CudaContext& context) const {
  const ir::TensorType& type = *context.input(0).type;
  const Blocks wide = blocks_of(type, axis_);
  const Blocks narrow = blocks_of(*context.output(0).type, axis_);
  const i64 entry_bytes = type.shape[axis_] == 0 ? 0 : wide.bytes / type.shape[axis_];
  copy_blocks(context.stream, context.input(0).data + begin_ * entry_bytes, wide.bytes,
              context.output(0).data, narrow.bytes, narrow);
}

void Concat::launch_cuda(const ir::CudaContext& context) const {
  const Blocks wide = blocks_of(*context.output(0).type, axis_);
  std::byte* to = context.output(0).data;
  for (const ir::View& part : context.inputs) {
    const Blocks narrow = blocks_of(*part.type, axis_);
    copy_blocks(context.stream, part.data, narrow.bytes, to, wide.bytes, narrow);
    to += narrow.bytes;
  }
}

}  // namespace wych::ops
