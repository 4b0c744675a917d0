// SelectState: state that moves on only with an applied step (a router's load, a bias), chosen by the
// decision record (step_decision.h).
#pragma once

#include "ir/op.h"
#include "ir/registry.h"

namespace wych::ops {

// state, candidate F[one shape], decision f64[Decision::kSize] -> state' (in place): candidate if the step is
// applied, else state, to the bit.
class SelectState final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "select_state"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::Alias> aliases() const override;
  [[nodiscard]] ir::Recompute recompute() const override { return ir::Recompute::kNever; }
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

ir::ValueId select_state(ir::Builder& builder, ir::ValueId state, ir::ValueId candidate,
                         ir::ValueId decision);

void register_select_state(ir::Registry& registry);

}  // namespace wych::ops
