// Softmax over the last axis of a matrix, with the row's maximum subtracted. A row that holds NaN or +inf, or
// only -inf, becomes NaN.
#pragma once

#include "ir/op.h"
#include "ir/registry.h"

namespace wych::ops {

// logits F[T,E] -> y F[T,E], y = exp(logits - lse(logits)) per row.
// vjp: dlogits = y (dy - sum_e dy_e y_e).
class Softmax final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "softmax"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  [[nodiscard]] std::vector<ir::Alias> aliases() const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

// dy F[T,E], y F[T,E] -> dlogits F[T,E].
class SoftmaxDx final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "softmax_dx"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::Alias> aliases() const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

ir::ValueId softmax(ir::Builder& builder, ir::ValueId logits);

void register_softmax(ir::Registry& registry);

}  // namespace wych::ops
