// Rows of a matrix by index, and their sum back: each other's gradient. Basic ops for reference compositions
// and research code; embed and moe_permute are the fast ones.
#pragma once

#include <algorithm>

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
  WYCH_CUDA_KERNEL;
};

// Entries of scatter_add_rows that CUDA adds up apart, if each of R rows has many: piece after piece of
// `length` entries, the last one shorter; their sums F[count, R, d] are in the workspace if there are
// several.
struct ScatterPieces {
  constexpr ScatterPieces(i64 entries, i64 num_rows)
      : length(std::max({i64{256}, 4 * num_rows, ceil_div(entries, 512)})),
        count(std::max<i64>(1, ceil_div(entries, length))) {}

  i64 length;
  i64 count;  // at least 1
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
  [[nodiscard]] i64 cuda_workspace(std::span<const ir::TensorType> inputs,
                                   std::span<const ir::TensorType> outputs,
                                   const CudaTarget& target) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  i64 num_rows_;
};

ir::ValueId gather_rows(ir::Builder& builder, ir::ValueId x, ir::ValueId index);
ir::ValueId scatter_add_rows(ir::Builder& builder, ir::ValueId x, ir::ValueId index, i64 num_rows);

void register_gather_rows(ir::Registry& registry);

}  // namespace wych::ops
