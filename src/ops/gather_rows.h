// Rows of a matrix by index, and their sum back: each other's gradient. Basic ops for reference compositions
// and research code; embed and moe_permute are the fast ones.
#pragma once

#include "ir/op.h"
#include "ir/registry.h"

namespace wych::ops {

// x F[R,d], index i32[n] -> y F[n,d]: y[i] = x[index[i]], or zero where index[i] is -1.
// vjp: dx = scatter_add_rows(dy, index).
class GatherRows final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "gather_rows"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  void run_cpu(const ir::ExecContext& context) const override;
};

// x F[n,d], index i32[n] -> y F[R,d]: y[r] = sum of x[i] over i with index[i] = r, in order of i; -1 is
// skipped. vjp: dx = gather_rows(dy, index).
class ScatterAddRows final : public ir::Op {
 public:
  explicit ScatterAddRows(i64 num_rows) : num_rows_(num_rows) {}
  [[nodiscard]] std::string_view name() const override { return "scatter_add_rows"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  void run_cpu(const ir::ExecContext& context) const override;

 private:
  i64 num_rows_;
};

ir::ValueId gather_rows(ir::Builder& builder, ir::ValueId x, ir::ValueId index);
ir::ValueId scatter_add_rows(ir::Builder& builder, ir::ValueId x, ir::ValueId index, i64 num_rows);

void register_gather_rows(ir::Registry& registry);

}  // namespace wych::ops
