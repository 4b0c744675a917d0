// The gated activation: with [gate | up] = gu (gate columns first) and s = sigmoid(gate),
//   a = silu(gate) * up = gate s up,
//   dgate = da up s (1 + gate (1 - s)),  dup = da gate s.
// Expert rows have one of their own: moe_swiglu.h.
#pragma once

#include "ir/builder.h"
#include "ir/registry.h"

namespace wych::ops {

// gu A[R, 2f] -> a A[R, f].
class Swiglu final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "swiglu"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

// da A[R, f], gu A[R, 2f] -> dgu A[R, 2f].
class SwigluDx final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "swiglu_dx"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::Alias> aliases() const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

ir::ValueId swiglu(ir::Builder& builder, ir::ValueId gu);

void register_swiglu(ir::Registry& registry);

}  // namespace wych::ops
