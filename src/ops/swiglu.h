// The gated activation: with [gate | up] = gu (gate columns first) and s = sigmoid(gate),
//   a = silu(gate) * up = gate s up,
//   dgate = da up s (1 + gate (1 - s)),  dup = da gate s.
// With offsets (grouped_linear.h), rows at and after offsets[E] are undefined and are neither read nor
// written.
#pragma once

#include "ir/builder.h"
#include "ir/registry.h"

namespace wych::ops {

// gu F[R, 2f] [, offsets i32[E + 1]] -> a F[R, f].
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

// da F[R, f], gu F[R, 2f] [, offsets i32[E + 1]] -> dgu F[R, 2f].
class SwigluDx final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "swiglu_dx"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::Alias> aliases() const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

// `offsets` may be kNoValue: all rows count.
ir::ValueId swiglu(ir::Builder& builder, ir::ValueId gu, ir::ValueId offsets = ir::kNoValue);

void register_swiglu(ir::Registry& registry);

}  // namespace wych::ops
