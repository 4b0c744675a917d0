// Cast: the only way from one dtype to another; nothing promotes by itself.
#pragma once

#include "ir/op.h"
#include "ir/registry.h"

namespace wych::ops {

// x of f32, f64, bf16, i32 or i64 -> the same shape in `to`, one of these. To a float: rounded to nearest
// even. To an integer: the fraction is dropped; NaN and what does not fit are a programmer's fault. vjp:
// between floats dx = dy cast back, else none.
class Cast final : public ir::Op {
 public:
  explicit Cast(DType to) : to_(to) {}
  [[nodiscard]] std::string_view name() const override { return "cast"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  DType to_;
};

ir::ValueId cast(ir::Builder& builder, ir::ValueId x, DType to);

void register_cast(ir::Registry& registry);

}  // namespace wych::ops
