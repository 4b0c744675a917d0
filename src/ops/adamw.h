// AdamW: one parameter's update with decoupled weight decay, driven by the decision record (step_decision.h).
// If the step is not applied nothing is read or written.
#pragma once

#include "ir/op.h"
#include "ir/registry.h"

namespace wych::ops {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0;
};

// p, g, m, v F[any one shape], decision f64[Decision::kSize] -> p', m', v' (all in place). With g scaled by
// the clip coefficient, learning rate lr and bias corrections c1, c2:
//   m' = m + (1 - beta1) (g - m);  v' = beta2 v + (1 - beta2) g^2
//   p' = p (1 - lr weight_decay) - (lr / c1) m' / (sqrt(v') / sqrt(c2) + eps)
// Scalars are prepared in float64, elements are in F.
class AdamW final : public ir::Op {
 public:
  explicit AdamW(const AdamWOptions& options) : options_(options) {}
  [[nodiscard]] std::string_view name() const override { return "adamw"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] ir::Cost cost(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const override;
  [[nodiscard]] std::vector<ir::Alias> aliases() const override;
  [[nodiscard]] ir::Recompute recompute() const override { return ir::Recompute::kNever; }
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  AdamWOptions options_;
};

struct AdamWValues {
  ir::ValueId parameter = ir::kNoValue;
  ir::ValueId m = ir::kNoValue;
  ir::ValueId v = ir::kNoValue;
};
AdamWValues adamw(ir::Builder& builder, ir::ValueId parameter, ir::ValueId gradient, ir::ValueId m,
                  ir::ValueId v, ir::ValueId decision, const AdamWOptions& options);

void register_adamw(ir::Registry& registry);

}  // namespace wych::ops
