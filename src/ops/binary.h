// Elementwise functions of two tensors of one type, and selection by a mask: basic ops for reference
// compositions and research code. Plain loops; nothing broadcasts (reduce.h has an op for that).
// The sum is ir::Add.
#pragma once

#include "ir/add.h"
#include "ir/op.h"
#include "ir/registry.h"

namespace wych::ops {

enum class BinaryKind : u8 { kSub, kMul, kDiv, kMaximum, kGreater, kGreaterEqual, kEqual };

// a F[...], b F[...] -> y F[...], F = f32 or f64:
//   kind             y                        vjp: da, db =
//   sub              a - b                    dy, -dy
//   mul              a b                      dy b, dy a
//   div              a / b                    dy / b, -dy y / b
//   maximum          a if a >= b, else b      dy goes to the one taken (a for equal ones)
//   greater          1 where a > b, else 0    none
//   greater_equal    1 where a >= b, else 0   none
//   equal            1 where a == b, else 0   none
// A NaN in a or b makes the maximum NaN.
class Binary final : public ir::Op {
 public:
  explicit Binary(BinaryKind kind) : kind_(kind) {}
  [[nodiscard]] std::string_view name() const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  [[nodiscard]] std::vector<ir::Alias> aliases() const override {
    return {{0, 0, ir::AliasKind::kMay}, {1, 0, ir::AliasKind::kMay}};
  }
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  BinaryKind kind_;
};

// mask F[...], a F[...], b F[...] -> y = a where mask != 0, else b. What is not taken is not looked at: a NaN
// there does no harm.
// vjp: da = select(mask, dy, 0), db = select(mask, 0, dy); none for the mask.
class Select final : public ir::Op {
 public:
  [[nodiscard]] std::string_view name() const override { return "select"; }
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  [[nodiscard]] std::vector<ir::Alias> aliases() const override {
    return {{0, 0, ir::AliasKind::kMay}, {1, 0, ir::AliasKind::kMay}, {2, 0, ir::AliasKind::kMay}};
  }
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;
};

ir::ValueId sub(ir::Builder& builder, ir::ValueId a, ir::ValueId b);
ir::ValueId mul(ir::Builder& builder, ir::ValueId a, ir::ValueId b);
ir::ValueId div(ir::Builder& builder, ir::ValueId a, ir::ValueId b);
ir::ValueId maximum(ir::Builder& builder, ir::ValueId a, ir::ValueId b);
ir::ValueId greater(ir::Builder& builder, ir::ValueId a, ir::ValueId b);
ir::ValueId greater_equal(ir::Builder& builder, ir::ValueId a, ir::ValueId b);
ir::ValueId equal(ir::Builder& builder, ir::ValueId a, ir::ValueId b);
ir::ValueId select(ir::Builder& builder, ir::ValueId mask, ir::ValueId a, ir::ValueId b);

void register_binary(ir::Registry& registry);

}  // namespace wych::ops
