// BalanceLoss: the load-balancing loss of a router: fractions of routes (a constant, expert_fractions.h)
// against mean probabilities, per group of consecutive tokens. Which f and which groups is the caller's
// scope; `scale` holds everything static: coefficient, number of experts, number of groups.
#pragma once

#include "ir/op.h"
#include "ir/registry.h"

namespace wych::ops {

// probs F[T,E], f F[G,E], G divides T -> loss f64[1] = scale sum_g sum_e f[g,e] p[g,e], where p[g] is the
// mean of probs over the n = T / G tokens of group g.
// vjp: dprobs[t,e] = dloss scale f[g,e] / n (BalanceLossDprobs); nothing for f.
class BalanceLoss final : public ir::Op {
 public:
  explicit BalanceLoss(double scale) : scale_(scale) {}
  [[nodiscard]] std::string_view name() const override { return "balance_loss"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override { visitor.visit("scale", scale_); }
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

 private:
  double scale_;
};

// dloss f64[1], f F[G,E] -> dprobs F[T,E] with T = tokens.
class BalanceLossDprobs final : public ir::Op {
 public:
  BalanceLossDprobs(double scale, i64 tokens) : scale_(scale), tokens_(tokens) {}
  [[nodiscard]] std::string_view name() const override { return "balance_loss_dprobs"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] ir::Recompute recompute() const override { return ir::Recompute::kNever; }
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  double scale_;
  i64 tokens_;
};

ir::ValueId balance_loss(ir::Builder& builder, ir::ValueId probs, ir::ValueId fractions, double scale);

void register_balance_loss(ir::Registry& registry);

}  // namespace wych::ops
