// RouterZLoss: keeps router logits small: the squared log-sum-exp of every token's logits.
#pragma once

#include "ir/op.h"
#include "ir/registry.h"

namespace wych::ops {

// logits F[T,E], denominator f64[1] -> loss f64[1] = sum_t lse_t^2 / denominator.
// vjp: dlogits[t] = dloss 2 lse_t softmax(logits[t]) / denominator; nothing for the denominator.
class RouterZLoss final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "router_z_loss"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  [[nodiscard]] ir::Recompute recompute() const override { return ir::Recompute::kNever; }
  [[nodiscard]] i64 workspace(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  // A partial sum of so many tokens.
  static constexpr i64 kCudaTokensPerChunk = 64;
  [[nodiscard]] i64 cuda_workspace(std::span<const ir::TensorType> inputs,
                                   std::span<const ir::TensorType> outputs,
                                   const CudaTarget& target) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

// dloss f64[1], logits F[T,E], denominator f64[1] -> dlogits F[T,E].
class RouterZLossDlogits final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "router_z_loss_dlogits"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] ir::Recompute recompute() const override { return ir::Recompute::kNever; }
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

ir::ValueId router_z_loss(ir::Builder& builder, ir::ValueId logits, ir::ValueId denominator);

void register_router_z_loss(ir::Registry& registry);

}  // namespace wych::ops
