// Op: one operation, and everything about it in one class: shapes, gradient, cost, aliasing, kernels.
// An op is immutable and shared; its attributes are typed members listed once by visit_attributes.
// An op that defines reference() gets a gradient and a CPU path from that composition; each may be replaced
// by its own. cases.h says what the suite (op_suite) checks for every op of the registry.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/cuda_target.h"
#include "base/expected.h"
#include "base/thread_pool.h"
#include "ir/graph.h"

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace wych::device {
class CudaAttention;
class Matmul;
}  // namespace wych::device

namespace wych::ir {

class Builder;

// Receives an op's attributes in a fixed order; used to print, compare and hash ops.
class AttributeVisitor {
 public:
  virtual ~AttributeVisitor() = default;
  virtual void visit(std::string_view name, i64 value) = 0;
  virtual void visit(std::string_view name, double value) = 0;
  virtual void visit(std::string_view name, std::string_view value) = 0;
};

// Per execution on one device. Bytes count every operand once.
struct Cost {
  double flops = 0;
  double bytes_read = 0;
  double bytes_written = 0;
  double bytes_communicated = 0;
};

// How an output may share an input's memory.
enum class AliasKind : u8 {
  kView,     // the same bytes under another shape; both stay readable
  kInPlace,  // the kernel updates the input's buffer: the input must not be read afterwards
  kMay,      // the kernel works when output and input are the same buffer; the planner decides
};
struct Alias {
  int input = 0;
  int output = 0;
  AliasKind kind = AliasKind::kMay;
};

// Whether the recompute pass may run an op again in the backward.
enum class Recompute : u8 {
  kCheap,   // memory-bound: dropped by `selective` and `block`
  kCostly,  // a GEMM or attention: dropped by `block` only
  kNever,   // would count twice or might choose differently: routing, losses, random numbers
};

// A pointer and a type; exists only while a kernel runs. Never owns.
struct View {
  std::byte* data = nullptr;
  const TensorType* type = nullptr;

  template <class T>
  [[nodiscard]] T* as() const {
    WYCH_DCHECK(type->dtype == DTypeOf<T>::kValue, "view of {} read as another type", type->text());
    return reinterpret_cast<T*>(data);
  }
  [[nodiscard]] i64 dim(int axis) const { return type->shape[axis]; }
  [[nodiscard]] i64 elements() const { return type->elements(); }
};

// All that a CPU kernel sees. Kernels allocate nothing, throw nothing, and split work by the problem alone,
// so their bits do not depend on the number of threads.
struct ExecContext {
  std::span<const View> inputs;   // without the accumulator
  std::span<const View> outputs;  // output accumulates() holds the sum so far if `accumulate`
  bool accumulate = false;
  std::byte* workspace = nullptr;  // workspace() bytes, 64-byte aligned, undefined content
  ThreadPool* pool = nullptr;

  [[nodiscard]] const View& input(int index) const { return inputs[static_cast<std::size_t>(index)]; }
  [[nodiscard]] const View& output(int index) const { return outputs[static_cast<std::size_t>(index)]; }
};

// All that a CUDA launch sees; views point to device memory. Work is queued on `stream`, which may be
// recording a graph: no allocation, no waiting, nothing read back, no other stream. Results are
// deterministic.
struct CudaContext {
  std::span<const View> inputs;   // without the accumulator
  std::span<const View> outputs;  // as in ExecContext
  bool accumulate = false;
  std::byte* workspace = nullptr;  // cuda_workspace() bytes, 256-byte aligned, undefined content
  CUstream_st* stream = nullptr;
  CudaTarget target;
  device::Matmul* matmul = nullptr;            // dense products in bfloat16
  device::CudaAttention* attention = nullptr;  // cuDNN's attention; null: kernels of our own alone

  [[nodiscard]] const View& input(int index) const { return inputs[static_cast<std::size_t>(index)]; }
  [[nodiscard]] const View& output(int index) const { return outputs[static_cast<std::size_t>(index)]; }
};

// In the class of an op with a CUDA kernel. launch_cuda is defined in the op's .cu file, which builds without
// CUDA leave out; planning for CUDA works in any build. WYCH_CUDA_PREPARE says the same of prepare_cuda.
#if WYCH_CUDA
#define WYCH_CUDA_KERNEL                                               \
  [[nodiscard]] bool has_cuda_kernel() const override { return true; } \
  void launch_cuda(const ::wych::ir::CudaContext& context) const override
#define WYCH_CUDA_PREPARE void prepare_cuda(const ::wych::ir::CudaContext& context) const override
#else
#define WYCH_CUDA_KERNEL                                               \
  [[nodiscard]] bool has_cuda_kernel() const override { return true; } \
  static_assert(true)
#define WYCH_CUDA_PREPARE static_assert(true)
#endif

// What an Op is asked to differentiate: its node's values.
struct NodeValues {
  std::span<const ValueId> inputs;  // without the accumulator
  std::span<const ValueId> outputs;
};

class Op {
 public:
  Op() = default;
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;
  virtual ~Op() = default;

  // "rms_norm": unique in the registry, the name in dumps.
  [[nodiscard]] virtual std::string_view name() const = 0;
  virtual void visit_attributes(AttributeVisitor& /*visitor*/) const {}

  // Output types, or an error that says which input has which type and what was expected (Error::where is
  // filled by the Builder). The only place with shape errors; mixed dtypes are rejected here.
  [[nodiscard]] virtual Expected<std::vector<TensorType>> infer(std::span<const TensorType> inputs) const = 0;

  // A composition of other ops with the same outputs. Empty if the op is basic.
  [[nodiscard]] virtual std::vector<ValueId> reference(Builder& /*builder*/,
                                                       std::span<const ValueId> /*inputs*/) const {
    return {};
  }

  // Appends the nodes that turn cotangents of the outputs (kNoValue: zero) into cotangents of the inputs
  // (kNoValue: none, for integers and constants). May use the forward's inputs and outputs: what is saved
  // follows from liveness. Default: the gradient of reference(), which is built again in the backward.
  [[nodiscard]] virtual std::vector<ValueId> vjp(Builder& builder, const NodeValues& node,
                                                 std::span<const ValueId> cotangents) const;

  // Default: no flops, every operand moved once.
  [[nodiscard]] virtual Cost cost(std::span<const TensorType> inputs,
                                  std::span<const TensorType> outputs) const;

  [[nodiscard]] virtual std::vector<Alias> aliases() const { return {}; }

  // The output into which the kernel can add (Node::accumulate), or -1.
  [[nodiscard]] virtual int accumulates() const { return -1; }

  [[nodiscard]] virtual Recompute recompute() const { return Recompute::kCheap; }

  // Scratch bytes of one execution on the CPU: a function of types alone.
  [[nodiscard]] virtual i64 workspace(std::span<const TensorType> /*inputs*/,
                                      std::span<const TensorType> /*outputs*/) const {
    return 0;
  }

  // False: the `expand` pass replaces the node by reference().
  [[nodiscard]] virtual bool has_cpu_kernel() const { return true; }
  virtual void run_cpu(const ExecContext& context) const;

  // The same three for CUDA. Scratch bytes may depend on the target; tests poison them.
  [[nodiscard]] virtual i64 cuda_workspace(std::span<const TensorType> /*inputs*/,
                                           std::span<const TensorType> /*outputs*/,
                                           const CudaTarget& /*target*/) const {
    return 0;
  }
  [[nodiscard]] virtual bool has_cuda_kernel() const { return false; }
  virtual void launch_cuda(const CudaContext& context) const;
  // Once per node when its program is loaded, before anything is recorded: builds what launch_cuda must not,
  // which is what libraries call plans. Gets what launch_cuda will get, and runs nothing.
  virtual void prepare_cuda(const CudaContext& /*context*/) const {}
};

// "rms_norm(eps=1e-05)"
std::string op_text(const Op& op);

// Errors for infer(): `what` with the list of input types appended.
Error shape_error(std::string_view what, std::span<const TensorType> inputs);

}  // namespace wych::ir
