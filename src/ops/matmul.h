// Matrix product: the basic op for reference compositions and research code. Plain loops; linear and
// grouped_linear are the fast ones.
#pragma once

#include "ir/op.h"
#include "ir/registry.h"

namespace wych::ops {

// a F[m,k] (or F[k,m] if trans_a), b F[k,n] (or F[n,k] if trans_b) -> y F[m,n] = op(a) op(b); or the same
// with an equal leading batch extent on all three. Sums run in order of k. vjp: with A = op(a), B = op(b): dA
// = dy B^T, dB = A^T dy, transposed where the input was.
class Matmul final : public ir::Op {
 public:
  Matmul(bool trans_a, bool trans_b) : trans_a_(trans_a), trans_b_(trans_b) {}
  [[nodiscard]] std::string_view name() const override { return "matmul"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  [[nodiscard]] ir::Cost cost(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  [[nodiscard]] ir::Recompute recompute() const override { return ir::Recompute::kCostly; }
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  bool trans_a_;
  bool trans_b_;
};

ir::ValueId matmul(ir::Builder& builder, ir::ValueId a, ir::ValueId b, bool trans_a = false,
                   bool trans_b = false);

void register_matmul(ir::Registry& registry);

}  // namespace wych::ops
