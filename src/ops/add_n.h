// AddN: the sum of many tensors, from the first to the last.
#pragma once

#include "ir/op.h"
#include "ir/registry.h"

namespace wych::ops {

// n >= 1 tensors of one type (f32, f64, i32 or i64) -> y = ((x_0 + x_1) + x_2) + ...
// vjp: every dx_i = dy.
class AddN final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "add_n"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  [[nodiscard]] ir::Cost cost(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  [[nodiscard]] std::vector<ir::Alias> aliases() const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

ir::ValueId add_n(ir::Builder& builder, std::span<const ir::ValueId> terms);

void register_add_n(ir::Registry& registry);

}  // namespace wych::ops
