#include "ops/elementwise.h"

#include <array>
#include <cmath>
#include <memory>
#include <string>

#include "ir/builder.h"
#include "ops/binary.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

constexpr std::array<std::string_view, 11> kNames = {
    "neg", "exp", "log", "sqrt", "rsqrt", "sigmoid", "silu", "tanh", "square", "scale", "add_constant"};

std::string_view kind_name(UnaryKind kind) { return kNames[static_cast<std::size_t>(kind)]; }

template <class T>
T evaluate(UnaryKind kind, T x, T constant) {
  switch (kind) {
    case UnaryKind::kNeg:
      return -x;
    case UnaryKind::kExp:
      return std::exp(x);
    case UnaryKind::kLog:
      return std::log(x);
    case UnaryKind::kSqrt:
      return std::sqrt(x);
    case UnaryKind::kRsqrt:
      return T{1} / std::sqrt(x);
    case UnaryKind::kSigmoid:
      return T{1} / (T{1} + std::exp(-x));
    case UnaryKind::kSilu:
      return x / (T{1} + std::exp(-x));
    case UnaryKind::kTanh:
      return std::tanh(x);
    case UnaryKind::kSquare:
      return x * x;
    case UnaryKind::kScale:
      return constant * x;
    case UnaryKind::kAddConstant:
      return x + constant;
  }
  return x;
}

ir::ValueId unary(ir::Builder& builder, UnaryKind kind, ir::ValueId x, double constant = 0) {
  return builder.add_one(std::make_shared<Unary>(kind, constant), {x});
}

// dy (1 - y)
ir::ValueId times_one_minus(ir::Builder& builder, ir::ValueId dy, ir::ValueId y) {
  return mul(builder, dy, add_constant(builder, neg(builder, y), 1.0));
}

}  // namespace

std::string_view Unary::name() const { return kind_name(kind_); }

void Unary::visit_attributes(ir::AttributeVisitor& visitor) const {
  if (kind_ == UnaryKind::kScale || kind_ == UnaryKind::kAddConstant) {
    visitor.visit("constant", constant_);
  }
}

Expected<std::vector<ir::TensorType>> Unary::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 1 || !is_compute(inputs[0].dtype)) {
    return ir::shape_error("needs one f32 or f64 input", inputs);
  }
  return std::vector<ir::TensorType>{inputs[0]};
}

std::vector<ir::ValueId> Unary::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                    std::span<const ir::ValueId> cotangents) const {
  const ir::ValueId x = node.inputs[0];
  const ir::ValueId y = node.outputs[0];
  const ir::ValueId dy = cotangents[0];
  switch (kind_) {
    case UnaryKind::kNeg:
      return {neg(builder, dy)};
    case UnaryKind::kExp:
      return {mul(builder, dy, y)};
    case UnaryKind::kLog:
      return {div(builder, dy, x)};
    case UnaryKind::kSqrt:
      return {div(builder, scale(builder, dy, 0.5), y)};
    case UnaryKind::kRsqrt:
      return {mul(builder, scale(builder, dy, -0.5), mul(builder, y, square(builder, y)))};
    case UnaryKind::kSigmoid:
      return {times_one_minus(builder, mul(builder, dy, y), y)};
    case UnaryKind::kSilu: {
      const ir::ValueId s = sigmoid(builder, x);
      return {ir::add(builder, mul(builder, dy, s), times_one_minus(builder, mul(builder, dy, y), s))};
    }
    case UnaryKind::kTanh:
      return {times_one_minus(builder, dy, square(builder, y))};
    case UnaryKind::kSquare:
      return {mul(builder, scale(builder, dy, 2.0), x)};
    case UnaryKind::kScale:
      return {scale(builder, dy, constant_)};
    case UnaryKind::kAddConstant:
      return {dy};
  }
  return {ir::kNoValue};
}

void Unary::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.output(0).type->dtype, [&]<class T>(T) {
    const T* x = context.input(0).as<T>();
    T* y = context.output(0).as<T>();
    for (i64 i = 0; i < context.output(0).elements(); ++i) {
      y[i] = evaluate(kind_, x[i], static_cast<T>(constant_));
    }
  });
}

ir::ValueId neg(ir::Builder& builder, ir::ValueId x) { return unary(builder, UnaryKind::kNeg, x); }
ir::ValueId exp(ir::Builder& builder, ir::ValueId x) { return unary(builder, UnaryKind::kExp, x); }
ir::ValueId log(ir::Builder& builder, ir::ValueId x) { return unary(builder, UnaryKind::kLog, x); }
ir::ValueId sqrt(ir::Builder& builder, ir::ValueId x) { return unary(builder, UnaryKind::kSqrt, x); }
ir::ValueId rsqrt(ir::Builder& builder, ir::ValueId x) { return unary(builder, UnaryKind::kRsqrt, x); }
ir::ValueId sigmoid(ir::Builder& builder, ir::ValueId x) { return unary(builder, UnaryKind::kSigmoid, x); }
ir::ValueId silu(ir::Builder& builder, ir::ValueId x) { return unary(builder, UnaryKind::kSilu, x); }
ir::ValueId tanh(ir::Builder& builder, ir::ValueId x) { return unary(builder, UnaryKind::kTanh, x); }
ir::ValueId square(ir::Builder& builder, ir::ValueId x) { return unary(builder, UnaryKind::kSquare, x); }
ir::ValueId scale(ir::Builder& builder, ir::ValueId x, double factor) {
  return unary(builder, UnaryKind::kScale, x, factor);
}
ir::ValueId add_constant(ir::Builder& builder, ir::ValueId x, double constant) {
  return unary(builder, UnaryKind::kAddConstant, x, constant);
}

namespace {

// The table of the header in other words, so that a slip in evaluate() shows.
double expected(UnaryKind kind, double x, double constant) {
  switch (kind) {
    case UnaryKind::kNeg:
      return 0 - x;
    case UnaryKind::kExp:
      return std::pow(M_E, x);
    case UnaryKind::kLog:
      return std::log2(x) * M_LN2;
    case UnaryKind::kSqrt:
      return std::pow(x, 0.5);
    case UnaryKind::kRsqrt:
      return std::pow(x, -0.5);
    case UnaryKind::kSigmoid:
      return 0.5 + 0.5 * std::tanh(x / 2);
    case UnaryKind::kSilu:
      return x * (0.5 + 0.5 * std::tanh(x / 2));
    case UnaryKind::kTanh:
      return std::sinh(x) / std::cosh(x);
    case UnaryKind::kSquare:
      return std::pow(x, 2);
    case UnaryKind::kScale:
      return x * constant;
    case UnaryKind::kAddConstant:
      return constant - (0 - x);
  }
  return x;
}

ir::OpCase unary_case(UnaryKind kind, std::string label, const ir::TensorType& type) {
  const bool positive = kind == UnaryKind::kLog || kind == UnaryKind::kSqrt || kind == UnaryKind::kRsqrt;
  const double constant = 0.7;
  ir::OpCase example;
  example.label = std::move(label);
  example.op = std::make_shared<Unary>(kind, constant);
  example.inputs = {{type, {}, positive ? 0.5 : -3.0, 3.0}};
  example.oracle = [kind, constant](const ir::Values& inputs) {
    ir::Values outputs = inputs;
    for (double& value : outputs[0]) {
      value = expected(kind, value, constant);
    }
    return outputs;
  };
  example.differentiable = {0};
  return example;
}

}  // namespace

void register_elementwise(ir::Registry& registry) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    const auto kind = static_cast<UnaryKind>(i);
    registry.add(std::string(kNames[i]), [kind](DType dtype) {
      return std::vector<ir::OpCase>{unary_case(kind, "7 x 3", {dtype, {7, 3}}),
                                     unary_case(kind, "one element", {dtype, {1}}),
                                     unary_case(kind, "empty", {dtype, {0}})};
    });
  }
}

}  // namespace wych::ops
