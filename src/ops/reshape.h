// Reshape and transpose: basic ops for reference compositions and research code.
#pragma once

#include <vector>

#include "ir/op.h"
#include "ir/registry.h"

namespace wych::ops {

// x of any type but u8 -> the same bytes as `shape`, with as many elements. A view: nothing is moved.
// vjp: dx = dy as the shape of x.
class Reshape final : public ir::Op {
 public:
  explicit Reshape(const ir::Shape& shape) : shape_(shape) {}
  [[nodiscard]] std::string_view name() const override { return "reshape"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  [[nodiscard]] ir::Cost cost(std::span<const ir::TensorType> /*inputs*/,
                              std::span<const ir::TensorType> /*outputs*/) const override {
    return {};
  }
  [[nodiscard]] std::vector<ir::Alias> aliases() const override { return {{0, 0, ir::AliasKind::kView}}; }
  void run_cpu(const ir::ExecContext& /*context*/) const override {}
  WYCH_CUDA_KERNEL;

 private:
  ir::Shape shape_;
};

// x F[...] -> y with y.shape[i] = x.shape[order[i]]; `order` is a permutation of the axes.
// vjp: dx = transpose(dy, inverse order).
class Transpose final : public ir::Op {
 public:
  explicit Transpose(std::vector<int> order) : order_(std::move(order)) {}
  [[nodiscard]] std::string_view name() const override { return "transpose"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  std::vector<int> order_;
};

ir::ValueId reshape(ir::Builder& builder, ir::ValueId x, const ir::Shape& shape);
ir::ValueId transpose(ir::Builder& builder, ir::ValueId x, std::vector<int> order);

void register_reshape(ir::Registry& registry);

}  // namespace wych::ops
