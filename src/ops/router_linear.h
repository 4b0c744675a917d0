// The router's linear map: activations of A, weight and logits of S, so that bfloat16 runs choose experts by
// float32 logits (type_checks.h: S is f32 where A is bf16, and A otherwise):
//   logits = x weight^T,  dx = dlogits weight,  dweight = dlogits^T x.
//
// On CUDA in bfloat16 the products run on tensor cores and keep float32's precision: a float32 is the sum of
// three bfloat16 (3 x 8 bits of mantissa), so w = w0 + w1 + w2 and x w = x w0 + x w1 + x w2, each product
// exact and each sum in float32 (G. Henry, P. Tang, A. Heinecke, "Leveraging the bfloat16 Artificial
// Intelligence Datatype For Higher-Precision Computations", 2019). One product over 3 E columns costs less
// than a float32 product of E columns without tensor cores. dx leaves in bfloat16, so there two parts of each
// side and three of their four products do.
#pragma once

#include "ir/builder.h"
#include "ir/registry.h"

namespace wych::ops {

// x A[T, d], weight S[E, d] -> logits S[T, E].
class RouterLinear final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "router_linear"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  [[nodiscard]] ir::Cost cost(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  [[nodiscard]] ir::Recompute recompute() const override { return ir::Recompute::kCostly; }
  [[nodiscard]] i64 cuda_workspace(std::span<const ir::TensorType> inputs,
                                   std::span<const ir::TensorType> outputs,
                                   const CudaTarget& target) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

// dlogits S[T, E], weight S[E, d] -> dx[T, d] of the attribute's type A.
class RouterLinearDx final : public ir::Op {
 public:
  explicit RouterLinearDx(DType activation) : activation_(activation) {}
  [[nodiscard]] std::string_view name() const override { return "router_linear_dx"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] ir::Cost cost(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  [[nodiscard]] ir::Recompute recompute() const override { return ir::Recompute::kCostly; }
  [[nodiscard]] i64 cuda_workspace(std::span<const ir::TensorType> inputs,
                                   std::span<const ir::TensorType> outputs,
                                   const CudaTarget& target) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  DType activation_;
};

// dlogits S[T, E], x A[T, d] -> dweight S[E, d].
class RouterLinearDw final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "router_linear_dw"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] ir::Cost cost(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  [[nodiscard]] int accumulates() const override { return 0; }
  [[nodiscard]] ir::Recompute recompute() const override { return ir::Recompute::kCostly; }
  [[nodiscard]] i64 cuda_workspace(std::span<const ir::TensorType> inputs,
                                   std::span<const ir::TensorType> outputs,
                                   const CudaTarget& target) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

ir::ValueId router_linear(ir::Builder& builder, ir::ValueId x, ir::ValueId weight);

// How the CUDA kernels divide their workspace in bfloat16; offsets are multiples of 256 bytes.
struct RouterWorkspace {
  i64 parts = 0;    // bf16, three blocks of the first operand that is split
  i64 others = 0;   // bf16, dx alone: three blocks of the second
  i64 product = 0;  // f32, the product of all parts; not for dx
  i64 bytes = 0;    // of everything; the library's own workspace lies at 0
};
// `split` and `others` are elements of the operands that are split, `product` elements of a product of one
// part.
RouterWorkspace router_workspace(i64 split, i64 others, i64 product);

void register_router_linear(ir::Registry& registry);

}  // namespace wych::ops
