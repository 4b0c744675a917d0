// Sums, maxima and means of a matrix along one side, and the broadcast that undoes their shape: basic ops for
// reference compositions and research code. A tensor of any rank >= 1 counts as the matrix [rows(), last
// extent]. Plain loops; sums run in order of the index.
#pragma once

#include "ir/op.h"
#include "ir/registry.h"

namespace wych::ops {

// Which extents go away (Reduce) or come back (Broadcast).
enum class Along : u8 {
  kLast,  // the last one: one value per row, F[rows()]
  kRows,  // all but the last: one value per column, F[last]
};

enum class ReduceKind : u8 { kSum, kMax, kMean };

// How CUDA cuts the entries behind each reduced value: into pieces that are reduced apart, and these among
// each other where there are several. Along::kLast depends on the last extent alone, so that a row's bits do
// not depend on its neighbours.
struct ReducePieces {
  static constexpr int kThreads = 256;  // of a block that reduces along kRows
  ReducePieces(const ir::Shape& shape, Along along);

  i64 length;  // entries of a piece; the last one may have fewer
  i64 count;   // at least 1
};

// x F[...] -> y F[rows()] or F[last].
// vjp: sum: dx = broadcast(dy); mean: that over the number of entries; max: dx = dy / (number of entries
// equal to the maximum) at each of these. A NaN makes its maximum NaN. Max and mean of nothing are a shape
// error.
class Reduce final : public ir::Op {
 public:
  Reduce(ReduceKind kind, Along along) : kind_(kind), along_(along) {}
  [[nodiscard]] std::string_view name() const override;
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
  ReduceKind kind_;
  Along along_;
};

// x F[rows()] or F[last] of `shape` -> y F[shape], the value repeated along the row or down the column.
// vjp: dx = reduce_sum(dy) along the same extents.
class Broadcast final : public ir::Op {
 public:
  Broadcast(const ir::Shape& shape, Along along) : shape_(shape), along_(along) {}
  [[nodiscard]] std::string_view name() const override { return "broadcast"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  ir::Shape shape_;
  Along along_;
};

ir::ValueId reduce_sum(ir::Builder& builder, ir::ValueId x, Along along);
ir::ValueId reduce_max(ir::Builder& builder, ir::ValueId x, Along along);
ir::ValueId reduce_mean(ir::Builder& builder, ir::ValueId x, Along along);
ir::ValueId broadcast(ir::Builder& builder, ir::ValueId x, const ir::Shape& shape, Along along);

void register_reduce(ir::Registry& registry);

}  // namespace wych::ops
