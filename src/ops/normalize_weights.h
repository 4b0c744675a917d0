// Routing weights that sum to one per token: no epsilon in the sum; a row whose sum is zero becomes zeros.
#pragma once

#include "ir/op.h"
#include "ir/registry.h"

namespace wych::ops {

// w F[T,k] -> y F[T,k], y_j = w_j / s, s = sum_j w_j; zeros if s = 0.
// vjp: dw_j = (dy_j - sum_i dy_i y_i) / s; zeros if s = 0.
class NormalizeWeights final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "normalize_weights"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  [[nodiscard]] std::vector<ir::Alias> aliases() const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

// dy F[T,k], w F[T,k] -> dw F[T,k].
class NormalizeWeightsDx final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "normalize_weights_dx"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::Alias> aliases() const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

ir::ValueId normalize_weights(ir::Builder& builder, ir::ValueId weights);

void register_normalize_weights(ir::Registry& registry);

}  // namespace wych::ops
