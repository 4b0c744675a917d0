// ExpertFractions: how many routes each expert got, per group of consecutive tokens (a sequence, or the whole
// microbatch). The f of balance_loss.h.
#pragma once

#include "ir/op.h"
#include "ir/registry.h"

namespace wych::ops {

// indices i32[T,k] -> f F[G,E] with G = T / tokens_per_group: f[g,e] = routes of group g to e divided by
// tokens_per_group; a row sums to k. A constant for autodiff.
class ExpertFractions final : public ir::Op {
 public:
  // `dtype`: the compute type F of the result.
  ExpertFractions(i64 experts, i64 tokens_per_group, DType dtype)
      : experts_(experts), tokens_per_group_(tokens_per_group), dtype_(dtype) {}
  [[nodiscard]] std::string_view name() const override { return "expert_fractions"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  [[nodiscard]] ir::Recompute recompute() const override { return ir::Recompute::kNever; }
  [[nodiscard]] i64 workspace(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  // A block counts so many routes of one group.
  static constexpr i64 kCudaRoutesPerChunk = 4096;
  [[nodiscard]] i64 cuda_workspace(std::span<const ir::TensorType> inputs,
                                   std::span<const ir::TensorType> outputs,
                                   const CudaTarget& target) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  i64 experts_;
  i64 tokens_per_group_;
  DType dtype_;
};

ir::ValueId expert_fractions(ir::Builder& builder, ir::ValueId indices, i64 experts, i64 tokens_per_group,
                             DType dtype);

void register_expert_fractions(ir::Registry& registry);

}  // namespace wych::ops
