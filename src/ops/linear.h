// Linear map without a bias, weights as (out, in):
//   y = x weight^T,  dx = dy weight,  dweight = dy^T x.
#pragma once

#include "ir/builder.h"
#include "ir/registry.h"

namespace wych::ops {

// x F[R, k], weight F[n, k] -> y F[R, n].
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
  WYCH_CUDA_KERNEL;
};

// dy F[R, n], weight F[n, k] -> dx F[R, k].
class LinearDx final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "linear_dx"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] ir::Cost cost(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  [[nodiscard]] ir::Recompute recompute() const override { return ir::Recompute::kCostly; }
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

// dy F[R, n], x F[R, k] -> dweight F[n, k].
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
  WYCH_CUDA_KERNEL;
};

ir::ValueId linear(ir::Builder& builder, ir::ValueId x, ir::ValueId weight);

void register_linear(ir::Registry& registry);

}  // namespace wych::ops
