// MoeCombine: gathers each token's k expert rows and sums them in the order of slots, so the result does not
// depend on where the rows lie. The rows are described in moe_placement.h.
#pragma once

#include "ir/op.h"
#include "ir/registry.h"
#include "ops/moe_placement.h"

namespace wych::ops {

// rows A[C,d], row_of_route i32[T,k], route_of_row i32[C], offsets i32[E+1] -> out A[T,d]:
// out[t] = sum_j rows[row_of_route[t,j]]. Weights of the routes are in the rows already (moe_swiglu.h).
// vjp: drows[r] = dout[token of r], zeros for pad rows, nothing past the segments (MoePermute).
class MoeCombine final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "moe_combine"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  [[nodiscard]] ir::Cost cost(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

ir::ValueId moe_combine(ir::Builder& builder, ir::ValueId rows, const Placement& placement);

void register_moe_combine(ir::Registry& registry);

}  // namespace wych::ops
