// The gated activation of expert rows, weighted by their routes. With [gate | up] = gu (gate columns first),
// s = sigmoid(gate) and w the weight of the row's route:
//   h = w gate s up.
// What follows is linear, so the weighted sum of a token's expert outputs becomes a plain one
// (moe_combine.h), and the outputs themselves are not needed in the backward:
//   dgate = dh w up s (1 + gate (1 - s)),  dup = dh w gate s,  dw = sum_j dh gate s up.
// The rows are described in moe_placement.h: pad rows, which hold zeros, give zeros; rows past the last
// segment are neither read nor written.
#pragma once

#include "ir/op.h"
#include "ir/registry.h"
#include "ops/moe_placement.h"

namespace wych::ops {

// gu A[C,2f], weights S[T,k], route_of_row i32[C], offsets i32[E+1] -> h A[C,f].
class MoeSwiglu final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "moe_swiglu"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

// dh A[C,f], gu A[C,2f], weights S[T,k], route_of_row i32[C], offsets i32[E+1]
//   -> dgu A[C,2f], dweights S[T,k]. Every route has a row.
class MoeSwigluDx final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "moe_swiglu_dx"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::Alias> aliases() const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

ir::ValueId moe_swiglu(ir::Builder& builder, ir::ValueId gu, ir::ValueId weights, const Placement& placement);

void register_moe_swiglu(ir::Registry& registry);

}  // namespace wych::ops
