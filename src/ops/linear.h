// Linear map without a bias, weights as (out, in):
//   y = x weight^T,  dx = dy weight,  dweight = dy^T x.
#pragma once

#include "ir/builder.h"
#include "ir/registry.h"

namespace wych::ops {

// A: F, or bf16 on CUDA; S: the same, or f32 where A is bf16 (type_checks.h).

// x A[R, k], weight A[n, k] -> y A[R, n].
class Linear final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "linear"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  [[nodiscard]] ir::Cost cost(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  [[nodiscard]] ir::Recompute recompute() const override { return ir::Recompute::kCostly; }
  void run_cpu(const ir::ExecContext& context) const override;
  [[nodiscard]] i64 cuda_workspace(std::span<const ir::TensorType> inputs,
                                   std::span<const ir::TensorType> outputs,
                                   const CudaTarget& target) const override;
  WYCH_CUDA_KERNEL;
};

// dy A[R, n], weight A[n, k] -> dx A[R, k].
class LinearDx final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "linear_dx"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] ir::Cost cost(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  [[nodiscard]] ir::Recompute recompute() const override { return ir::Recompute::kCostly; }
  void run_cpu(const ir::ExecContext& context) const override;
  [[nodiscard]] i64 cuda_workspace(std::span<const ir::TensorType> inputs,
                                   std::span<const ir::TensorType> outputs,
                                   const CudaTarget& target) const override;
  WYCH_CUDA_KERNEL;
};

// dy A[R, n], x A[R, k] -> dweight S[n, k].
class LinearDw final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "linear_dw"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] ir::Cost cost(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  [[nodiscard]] int accumulates() const override { return 0; }
  [[nodiscard]] ir::Recompute recompute() const override { return ir::Recompute::kCostly; }
  void run_cpu(const ir::ExecContext& context) const override;
  [[nodiscard]] i64 cuda_workspace(std::span<const ir::TensorType> inputs,
                                   std::span<const ir::TensorType> outputs,
                                   const CudaTarget& target) const override;
  WYCH_CUDA_KERNEL;
};

ir::ValueId linear(ir::Builder& builder, ir::ValueId x, ir::ValueId weight);

void register_linear(ir::Registry& registry);

}  // namespace wych::ops
