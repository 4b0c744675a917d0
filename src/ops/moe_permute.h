// MoePermute: copies each token's row to its k expert-sorted rows. Its transpose is the unweighted MoeCombine
// (moe_combine.h). The rows are described in moe_placement.h.
#pragma once

#include "ir/op.h"
#include "ir/registry.h"
#include "ops/moe_placement.h"

namespace wych::ops {

// x F[T,d], route_of_row i32[C], row_of_route i32[T,k], offsets i32[E+1] -> rows F[C,d]:
// rows[r] = x[route_of_row[r] / k] for r < offsets[E], zeros for pad rows; later rows are left untouched.
// vjp: dx[t] = sum_j drows[row_of_route[t,j]] in the order of slots (MoeCombine without weights).
class MoePermute final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "moe_permute"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

ir::ValueId moe_permute(ir::Builder& builder, ir::ValueId x, const Placement& placement);

void register_moe_permute(ir::Registry& registry);

}  // namespace wych::ops
