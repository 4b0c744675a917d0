// Elementwise functions of one tensor: basic ops for reference compositions and research code. Plain loops.
#pragma once

#include "ir/op.h"
#include "ir/registry.h"

namespace wych::ops {

enum class UnaryKind : u8 {
  kNeg,
  kExp,
  kLog,
  kSqrt,
  kRsqrt,
  kSigmoid,
  kSilu,
  kTanh,
  kSquare,
  kScale,
  kAddConstant,
};

// x F[...] -> y F[...], F = f32 or f64, any shape:
//   kind           y                 vjp: dx =
//   neg            -x                -dy
//   exp            e^x               dy y
//   log            ln x              dy / x
//   sqrt           x^(1/2)           dy / (2 y)
//   rsqrt          x^(-1/2)          -dy y^3 / 2
//   sigmoid        1 / (1 + e^-x)    dy y (1 - y)
//   silu           x sigmoid(x)      dy (s + y (1 - s)), s = sigmoid(x)
//   tanh           tanh x            dy (1 - y^2)
//   square         x^2               2 x dy
//   scale          c x               c dy
//   add_constant   x + c             dy
class Unary final : public ir::Op {
 public:
  // `constant` is c, used by scale and add_constant alone.
  explicit Unary(UnaryKind kind, double constant = 0) : kind_(kind), constant_(constant) {}
  [[nodiscard]] std::string_view name() const override;
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  [[nodiscard]] std::vector<ir::Alias> aliases() const override { return {{0, 0, ir::AliasKind::kMay}}; }
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  UnaryKind kind_;
  double constant_;
};

ir::ValueId neg(ir::Builder& builder, ir::ValueId x);
ir::ValueId exp(ir::Builder& builder, ir::ValueId x);
ir::ValueId log(ir::Builder& builder, ir::ValueId x);
ir::ValueId sqrt(ir::Builder& builder, ir::ValueId x);
ir::ValueId rsqrt(ir::Builder& builder, ir::ValueId x);
ir::ValueId sigmoid(ir::Builder& builder, ir::ValueId x);
ir::ValueId silu(ir::Builder& builder, ir::ValueId x);
ir::ValueId tanh(ir::Builder& builder, ir::ValueId x);
ir::ValueId square(ir::Builder& builder, ir::ValueId x);
ir::ValueId scale(ir::Builder& builder, ir::ValueId x, double factor);
ir::ValueId add_constant(ir::Builder& builder, ir::ValueId x, double constant);

void register_elementwise(ir::Registry& registry);

}  // namespace wych::ops
