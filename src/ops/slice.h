// Slice and concat along one axis, each other's gradient: basic ops for reference compositions and research
// code. Types f32, f64, i32, i64; plain copies.
#pragma once

#include <vector>

#include "ir/op.h"
#include "ir/registry.h"

namespace wych::ops {

// x [..., n, ...] -> y [..., length, ...]: entries begin .. begin + length - 1 of `axis` (>= 0).
// vjp: dx = dy between zeros.
class Slice final : public ir::Op {
 public:
  Slice(int axis, i64 begin, i64 length) : axis_(axis), begin_(begin), length_(length) {}
  [[nodiscard]] std::string_view name() const override { return "slice"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  int axis_;
  i64 begin_;
  i64 length_;
};

// One or more x_i [..., n_i, ...] of one dtype and equal other extents -> y [..., sum n_i, ...].
// vjp: dx_i = its slice of dy.
class Concat final : public ir::Op {
 public:
  explicit Concat(int axis) : axis_(axis) {}
  [[nodiscard]] std::string_view name() const override { return "concat"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  int axis_;
};

ir::ValueId slice(ir::Builder& builder, ir::ValueId x, int axis, i64 begin, i64 length);
ir::ValueId concat(ir::Builder& builder, std::vector<ir::ValueId> parts, int axis);

void register_slice(ir::Registry& registry);

}  // namespace wych::ops
