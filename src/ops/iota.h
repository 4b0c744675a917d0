// Iota and one-hot: constants and indices as numbers. Basic ops for reference compositions and research code.
// Neither has a gradient.
#pragma once

#include "ir/op.h"
#include "ir/registry.h"

namespace wych::ops {

// () -> [n] = 0, 1, ..., n - 1 in f32, f64, i32 or i64. In f32 n must not be above 2^24.
class Iota final : public ir::Op {
 public:
  Iota(i64 count, DType dtype) : count_(count), dtype_(dtype) {}
  [[nodiscard]] std::string_view name() const override { return "iota"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  i64 count_;
  DType dtype_;
};

// index i32[n] -> y F[n,E]: y[i,e] = 1 where e = index[i], else 0; a row of zeros for an index outside [0,
// E).
class OneHot final : public ir::Op {
 public:
  OneHot(i64 width, DType dtype) : width_(width), dtype_(dtype) {}
  [[nodiscard]] std::string_view name() const override { return "one_hot"; }
  void visit_attributes(ir::AttributeVisitor& visitor) const override;
  [[nodiscard]] Expected<std::vector<ir::TensorType>> infer(
      std::span<const ir::TensorType> inputs) const override;
  [[nodiscard]] std::vector<ir::ValueId> vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const override;
  void run_cpu(const ir::ExecContext& context) const override;
  WYCH_CUDA_KERNEL;

 private:
  i64 width_;
  DType dtype_;
};

ir::ValueId iota(ir::Builder& builder, i64 count, DType dtype);
ir::ValueId one_hot(ir::Builder& builder, ir::ValueId index, i64 width, DType dtype);

void register_iota(ir::Registry& registry);

}  // namespace wych::ops
