// TakeRow: y[0, :] = x[index, :]. Generation needs the logits of the last prompt token only. No gradient:
// CHECK-fails when differentiated.
#pragma once

#include "ir/builder.h"
#include "ir/registry.h"

namespace wych::ops {

// x F[R, d], index i32[1] in [0, R) (CHECKed) -> y F[1, d].
class TakeRow final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "take_row"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

ir::ValueId take_row(ir::Builder& builder, ir::ValueId x, ir::ValueId index);

void register_take_row(ir::Registry& registry);

}  // namespace wych::ops
