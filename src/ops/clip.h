// Clip: y = min(max(x, -limit), limit), NaN stays NaN.
//   dx = dy where |x| <= limit, else 0 (as torch.clamp; 0 where x is NaN).
#pragma once

#include "ir/builder.h"
#include "ir/registry.h"

namespace wych::ops {

// x F[...] -> y of the same type. limit > 0.
class Clip final : public ir::Op {
 public:
  explicit Clip(double limit) : limit_(limit) {}
  [[nodiscard]] std::string_view name() const override { return "clip"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  [[nodiscard]] std::vector<ir::Alias> aliases() const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  double limit_;
};

// dy F[...], x of the same type -> dx of the same type.
class ClipDx final : public ir::Op {
 public:
  explicit ClipDx(double limit) : limit_(limit) {}
  [[nodiscard]] std::string_view name() const override { return "clip_dx"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::Alias> aliases() const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  double limit_;
};

ir::ValueId clip(ir::Builder& builder, ir::ValueId x, double limit);

void register_clip(ir::Registry& registry);

}  // namespace wych::ops
