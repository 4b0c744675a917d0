// GroupedLinear: a linear map per expert over its segment of rows (moe_placement.h). Rows past offsets[E] are
// neither read nor written. Every element is one sum in the order of kernels/gemm.h: where a row lies and how
// many there are changes no bit of it.
#pragma once

#include "ir/op.h"
#include "ir/registry.h"

namespace wych::ops {

// x F[C,k], w F[E,n,k], offsets i32[E+1] -> y F[C,n]: y[r] = w[e] x[r] for r in segment e.
// vjp: dx[r] = w[e]^T dy[r] (GroupedLinearDx); dw[e] = sum over r in segment e of dy[r] x[r]^T
//      (GroupedLinearDw).
class GroupedLinear final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "grouped_linear"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  // Flops of all C rows: how many are used is known on the device only.
  [[nodiscard]] ir::Cost cost(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  [[nodiscard]] ir::Recompute recompute() const override { return ir::Recompute::kCostly; }
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

// dy F[C,n], w F[E,n,k], offsets i32[E+1] -> dx F[C,k].
class GroupedLinearDx final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "grouped_linear_dx"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] ir::Cost cost(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

// dy F[C,n], x F[C,k], offsets i32[E+1] -> dw F[E,n,k]. Accumulates. An expert without rows gets zeros, or
// keeps its sum when accumulating.
class GroupedLinearDw final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "grouped_linear_dw"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] ir::Cost cost(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  [[nodiscard]] int accumulates() const override { return 0; }
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

ir::ValueId grouped_linear(ir::Builder& builder, ir::ValueId x, ir::ValueId w, ir::ValueId offsets);

void register_grouped_linear(ir::Registry& registry);

}  // namespace wych::ops
