// The k largest of each row, in a total order that does not depend on the machine: larger first, equal scores
// by lower column, NaN below everything. So indices are distinct and in range whatever the scores are.
#pragma once

#include "ir/op.h"
#include "ir/registry.h"

namespace wych::ops {

// scores F[T,E] -> values F[T,k], indices i32[T,k], descending; 1 <= k <= E.
// vjp: dscores[t, indices[t,j]] = dvalues[t,j], zero elsewhere (TopKDx).
class TopK final : public ir::Op {
 public:
  explicit TopK(i64 k) : k_(k) {}
  [[nodiscard]] std::string_view name() const override { return "top_k"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override { visitor.visit("k", k_); }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  [[nodiscard]] ir::Recompute recompute() const override { return ir::Recompute::kNever; }
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  i64 k_;
};

// dvalues F[T,k], indices i32[T,k] -> dscores F[T,E].
class TopKDx final : public ir::Op {
 public:
  explicit TopKDx(i64 experts) : experts_(experts) {}
  [[nodiscard]] std::string_view name() const override { return "top_k_dx"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override { visitor.visit("experts", experts_); }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  i64 experts_;
};

struct TopKValues {
  ir::ValueId values = ir::kNoValue;   // F[T,k]
  ir::ValueId indices = ir::kNoValue;  // i32[T,k]
};
TopKValues top_k(ir::Builder& builder, ir::ValueId scores, i64 k);

void register_top_k(ir::Registry& registry);

}  // namespace wych::ops
