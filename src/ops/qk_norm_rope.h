// Norm of queries and keys, then rotation, in one pass over a qkv matrix: qk_norm.h followed by rope.h, whose
// maths, layouts and names hold here. In between nothing is rounded. The gradient goes back through both in
// one pass, too, and recomputes nothing but the angles.
#pragma once

#include "ops/qk_norm.h"
#include "ops/rope.h"

namespace wych::ops {

struct QkNormRopeShape {
  bool per_head = false;  // norm
  RopeShape rope;         // holds the layout of both

  [[nodiscard]] QkNormShape norm() const { return {rope.layout, per_head}; }
};

// qkv A[T, width], q_weight S[hq hd] or S[hd], k_weight S[hkv hd] or S[hd], document_start i32[T]
//   -> rotated A[T, width], rstd S[T, query_rows + key_rows].
class QkNormRope final : public ir::Op {
 public:
  QkNormRope(const QkNormRopeShape& shape, double eps) : shape_(shape), eps_(eps) {}
  [[nodiscard]] std::string_view name() const override { return "qk_norm_rope"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> reference(ir::Builder& builder,
                                                   std::span<const ir::ValueId> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  [[nodiscard]] ir::Cost cost(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  [[nodiscard]] std::vector<ir::Alias> aliases() const override;
  [[nodiscard]] i64 workspace(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  QkNormRopeShape shape_;
  double eps_;
};

// drotated A[T, width], qkv, q_weight, k_weight, rstd, document_start
//   -> dqkv A[T, width], dq_weight S, dk_weight S. Accumulates dq_weight.
class QkNormRopeBackward final : public ir::Op {
 public:
  explicit QkNormRopeBackward(const QkNormRopeShape& shape) : shape_(shape) {}
  [[nodiscard]] std::string_view name() const override { return "qk_norm_rope_backward"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> reference(ir::Builder& builder,
                                                   std::span<const ir::ValueId> inputs) const override;
  [[nodiscard]] std::vector<ir::Alias> aliases() const override;
  [[nodiscard]] int accumulates() const override { return 1; }
  [[nodiscard]] i64 workspace(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  // Blocks that go through the tokens, as many as are resident at a time, with a partial sum of both weights'
  // gradients, head by head, each.
  static constexpr int kBlocksPerSm = 3;
  static i64 cuda_blocks(i64 tokens, const CudaTarget& target);
  [[nodiscard]] i64 cuda_workspace(std::span<const ir::TensorType> inputs,
                                   std::span<const ir::TensorType> outputs,
                                   const CudaTarget& target) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  QkNormRopeShape shape_;
};

// rotated alone.
ir::ValueId qk_norm_rope(ir::Builder& builder, ir::ValueId qkv, ir::ValueId q_weight, ir::ValueId k_weight,
                         ir::ValueId document_start, const QkNormRopeShape& shape, double eps);

void register_qk_norm_rope(ir::Registry& registry);

}  // namespace wych::ops
