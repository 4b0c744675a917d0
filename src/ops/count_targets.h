// Counts the targets that are trained on, over all microbatches: the denominator of every loss.
#pragma once

#include <span>

#include "ir/builder.h"
#include "ir/registry.h"

namespace wych::ops {

// A target that is ignored by losses and counts.
inline constexpr i32 kIgnoredTarget = -100;

// One or more targets i32[T] -> f64[1], the number of entries that are not kIgnoredTarget.
class CountTargets final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "count_targets"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  // Integers have no gradient.
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  [[nodiscard]] ir::Recompute recompute() const override { return ir::Recompute::kNever; }
  // Partial counts of an input.
  static constexpr i64 kCudaBlocks = 16;
  [[nodiscard]] i64 cuda_workspace(std::span<const ir::TensorType> inputs,
                                   std::span<const ir::TensorType> outputs,
                                   const CudaTarget& target) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

ir::ValueId count_targets(ir::Builder& builder, std::span<const ir::ValueId> targets);

void register_count_targets(ir::Registry& registry);

}  // namespace wych::ops
