// Small ops for the tests of this folder, which must not know src/ops. All take and give f64[n].
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ir/add.h"
#include "ir/builder.h"

namespace wych::ir::testing {

inline TensorType f64(i64 n) { return {DType::kF64, {n}}; }

class VectorOp : public Op {
 public:
  explicit VectorOp(std::size_t num_inputs) : num_inputs_(num_inputs) {}
  [[nodiscard]] Expected<std::vector<TensorType>> infer(std::span<const TensorType> inputs) const override {
    bool right = inputs.size() == num_inputs_;
    for (const TensorType& type : inputs) {
      right = right && type == inputs[0] && type.dtype == DType::kF64 && type.shape.rank() == 1;
    }
    if (!right) {
      return shape_error("needs f64[n] inputs", inputs);
    }
    return std::vector<TensorType>{inputs[0]};
  }

 private:
  std::size_t num_inputs_;
};

// dw = dy x, which can add into its output: what a weight gradient is.
class ProductDw final : public VectorOp {
 public:
  ProductDw() : VectorOp(2) {}
  [[nodiscard]] std::string_view name() const override { return "product_dw"; }
  [[nodiscard]] int accumulates() const override { return 0; }
  void run_cpu(const ExecContext& context) const override {
    for (i64 i = 0; i < context.output(0).elements(); ++i) {
      double& dw = context.output(0).as<double>()[i];
      dw =
          (context.accumulate ? dw : 0) + context.input(0).as<double>()[i] * context.input(1).as<double>()[i];
    }
  }
};

// y = w x; vjp: dw = product_dw(dy, x), dx = product(w, dy).
class Product final : public VectorOp {
 public:
  Product() : VectorOp(2) {}
  [[nodiscard]] std::string_view name() const override { return "product"; }
  [[nodiscard]] std::vector<ValueId> vjp(Builder& builder, const NodeValues& node,
                                         std::span<const ValueId> cotangents) const override {
    return {builder.add_one(std::make_shared<ProductDw>(), {cotangents[0], node.inputs[1]}),
            builder.add_one(std::make_shared<Product>(), {node.inputs[0], cotangents[0]})};
  }
  void run_cpu(const ExecContext& context) const override {
    for (i64 i = 0; i < context.output(0).elements(); ++i) {
      context.output(0).as<double>()[i] = context.input(0).as<double>()[i] * context.input(1).as<double>()[i];
    }
  }
};

// y = w x + w, with no vjp of its own: the default differentiates the reference.
class ProductPlus final : public VectorOp {
 public:
  ProductPlus() : VectorOp(2) {}
  [[nodiscard]] std::string_view name() const override { return "product_plus"; }
  [[nodiscard]] std::vector<ValueId> reference(Builder& builder,
                                               std::span<const ValueId> inputs) const override {
    const ValueId product = builder.add_one(std::make_shared<Product>(), {inputs[0], inputs[1]});
    return {ir::add(builder, product, inputs[0])};
  }
  void run_cpu(const ExecContext& context) const override {
    for (i64 i = 0; i < context.output(0).elements(); ++i) {
      const double w = context.input(0).as<double>()[i];
      context.output(0).as<double>()[i] = w * context.input(1).as<double>()[i] + w;
    }
  }
};

// x' = x + step dx, in the buffer of x.
class Step final : public VectorOp {
 public:
  explicit Step(double step) : VectorOp(2), step_(step) {}
  [[nodiscard]] std::string_view name() const override { return "step"; }
  void visit_attributes(AttributeVisitor& visitor) const override { visitor.visit("step", step_); }
  [[nodiscard]] std::vector<Alias> aliases() const override { return {{0, 0, AliasKind::kInPlace}}; }
  void run_cpu(const ExecContext& context) const override {
    for (i64 i = 0; i < context.output(0).elements(); ++i) {
      context.output(0).as<double>()[i] += step_ * context.input(1).as<double>()[i];
    }
  }

 private:
  double step_;
};

// The same bytes as f64[1, n].
class AsRow final : public VectorOp {
 public:
  AsRow() : VectorOp(1) {}
  [[nodiscard]] std::string_view name() const override { return "as_row"; }
  [[nodiscard]] Expected<std::vector<TensorType>> infer(std::span<const TensorType> inputs) const override {
    WYCH_TRY(const std::vector<TensorType> same, VectorOp::infer(inputs));
    return std::vector<TensorType>{{DType::kF64, {1, same[0].shape[0]}}};
  }
  [[nodiscard]] std::vector<Alias> aliases() const override { return {{0, 0, AliasKind::kView}}; }
  void run_cpu(const ExecContext& /*context*/) const override {}
};

// Doubles x, and then writes one byte behind a buffer.
enum class Where { kOutput, kInput, kWorkspace };
class Careless final : public VectorOp {
 public:
  explicit Careless(Where where) : VectorOp(1), where_(where) {}
  [[nodiscard]] std::string_view name() const override { return "careless"; }
  [[nodiscard]] i64 workspace(std::span<const TensorType> /*inputs*/,
                              std::span<const TensorType> /*outputs*/) const override {
    return 8;
  }
  void run_cpu(const ExecContext& context) const override {
    const View& y = context.output(0);
    for (i64 i = 0; i < y.elements(); ++i) {
      y.as<double>()[i] = 2 * context.input(0).as<double>()[i];
    }
    std::byte* end = where_ == Where::kOutput  ? y.data + y.type->bytes()
                     : where_ == Where::kInput ? context.input(0).data + y.type->bytes()
                                               : context.workspace + 8;
    *end = std::byte{0};
  }

 private:
  Where where_;
};

inline ValueId product(Builder& builder, ValueId w, ValueId x) {
  return builder.add_one(std::make_shared<Product>(), {w, x});
}

}  // namespace wych::ir::testing
