#include "ops/binary.h"

#include <array>
#include <cmath>
#include <memory>
#include <string>

#include "ir/builder.h"
#include "ops/elementwise.h"
#include "ops/fill.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

constexpr std::array<std::string_view, 7> kNames = {"sub",     "mul",           "div",  "maximum",
                                                    "greater", "greater_equal", "equal"};

template <class T>
T evaluate(BinaryKind kind, T a, T b) {
  switch (kind) {
    case BinaryKind::kSub:
      return a - b;
    case BinaryKind::kMul:
      return a * b;
    case BinaryKind::kDiv:
      return a / b;
    case BinaryKind::kMaximum:
      return a >= b || a != a ? a : b;
    case BinaryKind::kGreater:
      return static_cast<T>(a > b);
    case BinaryKind::kGreaterEqual:
      return static_cast<T>(a >= b);
    case BinaryKind::kEqual:
      return static_cast<T>(a == b);
  }
  return a;
}

ir::ValueId binary(ir::Builder& builder, BinaryKind kind, ir::ValueId a, ir::ValueId b) {
  return builder.add_one(std::make_shared<Binary>(kind), {a, b});
}

ir::ValueId zeros_like(ir::Builder& builder, ir::ValueId x) {
  const ir::TensorType type = builder.type(x);  // a copy: appending a node moves the original
  return fill(builder, 0.0, type);
}

}  // namespace

std::string_view Binary::name() const { return kNames[static_cast<std::size_t>(kind_)]; }

Expected<std::vector<ir::TensorType>> Binary::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 2 || inputs[0] != inputs[1] || !is_compute(inputs[0].dtype)) {
    return ir::shape_error("needs two inputs of one type, f32 or f64", inputs);
  }
  return std::vector<ir::TensorType>{inputs[0]};
}

std::vector<ir::ValueId> Binary::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                     std::span<const ir::ValueId> cotangents) const {
  const ir::ValueId a = node.inputs[0];
  const ir::ValueId b = node.inputs[1];
  const ir::ValueId dy = cotangents[0];
  switch (kind_) {
    case BinaryKind::kSub:
      return {dy, neg(builder, dy)};
    case BinaryKind::kMul:
      return {mul(builder, dy, b), mul(builder, dy, a)};
    case BinaryKind::kDiv: {
      const ir::ValueId da = div(builder, dy, b);
      return {da, neg(builder, mul(builder, da, node.outputs[0]))};
    }
    case BinaryKind::kMaximum: {
      const ir::ValueId mask = greater_equal(builder, a, b);
      const ir::ValueId zero = zeros_like(builder, dy);
      return {select(builder, mask, dy, zero), select(builder, mask, zero, dy)};
    }
    case BinaryKind::kGreater:
    case BinaryKind::kGreaterEqual:
    case BinaryKind::kEqual:
      return {ir::kNoValue, ir::kNoValue};
  }
  return {ir::kNoValue, ir::kNoValue};
}

void Binary::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.output(0).type->dtype, [&]<class T>(T) {
    const T* a = context.input(0).as<T>();
    const T* b = context.input(1).as<T>();
    T* y = context.output(0).as<T>();
    for (i64 i = 0; i < context.output(0).elements(); ++i) {
      y[i] = evaluate(kind_, a[i], b[i]);
    }
  });
}

Expected<std::vector<ir::TensorType>> Select::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 3 || inputs[0] != inputs[1] || inputs[1] != inputs[2] ||
      !is_compute(inputs[0].dtype)) {
    return ir::shape_error("needs a mask and two inputs, all of one type, f32 or f64", inputs);
  }
  return std::vector<ir::TensorType>{inputs[0]};
}

std::vector<ir::ValueId> Select::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                     std::span<const ir::ValueId> cotangents) const {
  const ir::ValueId mask = node.inputs[0];
  const ir::ValueId zero = zeros_like(builder, cotangents[0]);
  return {ir::kNoValue, select(builder, mask, cotangents[0], zero),
          select(builder, mask, zero, cotangents[0])};
}

void Select::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.output(0).type->dtype, [&]<class T>(T) {
    const T* mask = context.input(0).as<T>();
    const T* a = context.input(1).as<T>();
    const T* b = context.input(2).as<T>();
    T* y = context.output(0).as<T>();
    for (i64 i = 0; i < context.output(0).elements(); ++i) {
      y[i] = mask[i] != T{0} ? a[i] : b[i];
    }
  });
}

ir::ValueId sub(ir::Builder& builder, ir::ValueId a, ir::ValueId b) {
  return binary(builder, BinaryKind::kSub, a, b);
}
ir::ValueId mul(ir::Builder& builder, ir::ValueId a, ir::ValueId b) {
  return binary(builder, BinaryKind::kMul, a, b);
}
ir::ValueId div(ir::Builder& builder, ir::ValueId a, ir::ValueId b) {
  return binary(builder, BinaryKind::kDiv, a, b);
}
ir::ValueId maximum(ir::Builder& builder, ir::ValueId a, ir::ValueId b) {
  return binary(builder, BinaryKind::kMaximum, a, b);
}
ir::ValueId greater(ir::Builder& builder, ir::ValueId a, ir::ValueId b) {
  return binary(builder, BinaryKind::kGreater, a, b);
}
ir::ValueId greater_equal(ir::Builder& builder, ir::ValueId a, ir::ValueId b) {
  return binary(builder, BinaryKind::kGreaterEqual, a, b);
}
ir::ValueId equal(ir::Builder& builder, ir::ValueId a, ir::ValueId b) {
  return binary(builder, BinaryKind::kEqual, a, b);
}
ir::ValueId select(ir::Builder& builder, ir::ValueId mask, ir::ValueId a, ir::ValueId b) {
  return builder.add_one(std::make_shared<Select>(), {mask, a, b});
}

namespace {

double expected(BinaryKind kind, double a, double b) {
  switch (kind) {
    case BinaryKind::kSub:
      return a + -b;
    case BinaryKind::kMul:
      return b * a;
    case BinaryKind::kDiv:
      return a * (1 / b);
    case BinaryKind::kMaximum:
      return std::fmax(a, b);
    case BinaryKind::kGreater:
      return std::isgreater(a, b) ? 1 : 0;
    case BinaryKind::kGreaterEqual:
      return std::isless(a, b) ? 0 : 1;
    case BinaryKind::kEqual:
      return std::islessgreater(a, b) ? 0 : 1;
  }
  return a;
}

ir::OpCase binary_case(BinaryKind kind, std::string label, const ir::TensorType& type) {
  const double low = kind == BinaryKind::kDiv ? 0.5 : -2.0;
  ir::OpCase example;
  example.label = std::move(label);
  example.op = std::make_shared<Binary>(kind);
  example.inputs = {{type, {}, -2.0, 2.0}, {type, {}, low, 2.0}};
  example.oracle = [kind](const ir::Values& inputs) {
    ir::Values outputs = {inputs[0]};
    for (std::size_t i = 0; i < inputs[0].size(); ++i) {
      outputs[0][i] = expected(kind, inputs[0][i], inputs[1][i]);
    }
    return outputs;
  };
  if (kind < BinaryKind::kGreater) {
    example.differentiable = {0, 1};
  }
  return example;
}

std::vector<ir::OpCase> binary_cases(BinaryKind kind, DType dtype) {
  std::vector<ir::OpCase> cases = {binary_case(kind, "5 x 3", {dtype, {5, 3}}),
                                   binary_case(kind, "one element", {dtype, {1}}),
                                   binary_case(kind, "empty", {dtype, {3, 0}})};
  ir::OpCase ties = binary_case(kind, "equal entries", {dtype, {4}});
  ties.inputs[0].values = {1, 0.5, -2, 0};
  ties.inputs[1].values = {1, 0.25, -2, 1};
  ties.differentiable = {};  // the maximum has a kink there
  cases.push_back(std::move(ties));
  return cases;
}

std::vector<ir::OpCase> select_cases(DType dtype) {
  ir::OpCase example;
  example.label = "7 entries, NaN where not taken";
  example.op = std::make_shared<Select>();
  const ir::TensorType type{dtype, {7}};
  example.inputs = {{type, {0, 1, 0, 1, -2, 0.5, 0}},
                    {type, {NAN, 1, NAN, 3, 4, 5, NAN}},
                    {type, {10, NAN, 12, NAN, NAN, NAN, 16}}};
  example.oracle = [](const ir::Values& inputs) {
    ir::Values outputs = {inputs[0]};
    for (std::size_t i = 0; i < inputs[0].size(); ++i) {
      outputs[0][i] = inputs[inputs[0][i] == 0 ? 2 : 1][i];
    }
    return outputs;
  };
  example.differentiable = {1, 2};
  return {std::move(example)};
}

}  // namespace

void register_binary(ir::Registry& registry) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    const auto kind = static_cast<BinaryKind>(i);
    registry.add(std::string(kNames[i]), [kind](DType dtype) { return binary_cases(kind, dtype); });
  }
  registry.add("select", select_cases);
}

}  // namespace wych::ops
