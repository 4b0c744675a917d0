// Fill: a tensor of one constant.
#pragma once

#include "ir/op.h"
#include "ir/registry.h"

namespace wych::ops {

// () -> type, every element `value`. Type: f32, f64, i32 or i64; an integer type needs a whole `value`.
class Fill final : public ir::Op {
 public:
  Fill(double value, const ir::TensorType& type) : value_(value), type_(type) {}
  [[nodiscard]] std::string_view name() const override { return "fill"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  double value_;
  ir::TensorType type_;
};

ir::ValueId fill(ir::Builder& builder, double value, const ir::TensorType& type);

void register_fill(ir::Registry& registry);

}  // namespace wych::ops
