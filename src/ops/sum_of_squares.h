// SumOfSquares: the squared 2-norm of each of many tensors, for the global norm of the gradients. Blocks of
// 1024 elements are summed in F, blocks in float64, in an order fixed by the sizes alone. In f32 an element
// beyond 1.8e19 gives infinity, which the step's decision treats as non-finite.
#pragma once

#include "ir/op.h"
#include "ir/registry.h"

namespace wych::ops {

// n >= 1 tensors of one type F and any shapes -> f64[n].
class SumOfSquares final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "sum_of_squares"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] ir::Cost cost(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  [[nodiscard]] ir::Recompute recompute() const override { return ir::Recompute::kNever; }
  [[nodiscard]] i64 workspace(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  static constexpr i64 kCudaChunk = 1 << 15;  // elements of one partial sum
  [[nodiscard]] i64 cuda_workspace(std::span<const ir::TensorType> inputs,
                                   std::span<const ir::TensorType> outputs,
                                   const CudaTarget& target) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

ir::ValueId sum_of_squares(ir::Builder& builder, std::span<const ir::ValueId> tensors);

void register_sum_of_squares(ir::Registry& registry);

}  // namespace wych::ops
