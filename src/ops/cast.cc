#include "ops/cast.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "ir/builder.h"

namespace wych::ops {
namespace {

template <class F>
void dispatch(DType dtype, F&& function) {
  switch (dtype) {
    case DType::kF32:
      return function(float{});
    case DType::kF64:
      return function(double{});
    case DType::kBF16:
      return function(bf16{});
    case DType::kI32:
      return function(i32{});
    default:
      return function(i64{});
  }
}

// bf16 meets the other types as the float it stands for. From f64 that rounds twice, as every framework does.
template <class To, class From>
To convert(From value) {
  if constexpr (std::is_same_v<From, To>) {
    return value;
  } else if constexpr (std::is_same_v<From, bf16>) {
    return static_cast<To>(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, bf16>) {
    return bf16(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace

void Cast::visit_attributes(ir::AttributeVisitor& visitor) const { visitor.visit("to", dtype_name(to_)); }

Expected<std::vector<ir::TensorType>> Cast::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 1 || inputs[0].dtype == DType::kU8 || to_ == DType::kU8) {
    return ir::shape_error(
        fmt::format("needs one f32, f64, bf16, i32 or i64 input to cast to {}", dtype_name(to_)), inputs);
  }
  return std::vector<ir::TensorType>{{to_, inputs[0].shape}};
}

std::vector<ir::ValueId> Cast::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                   std::span<const ir::ValueId> cotangents) const {
  const DType from = builder.type(node.inputs[0]).dtype;
  if (!is_float(from) || !is_float(to_)) {
    return {ir::kNoValue};
  }
  return {cast(builder, cotangents[0], from)};
}

void Cast::run_cpu(const ir::ExecContext& context) const {
  dispatch(context.input(0).type->dtype, [&]<class From>(From) {
    dispatch(to_, [&]<class To>(To) {
      const From* x = context.input(0).as<From>();
      To* y = context.output(0).as<To>();
      for (i64 i = 0; i < context.output(0).elements(); ++i) {
        y[i] = convert<To>(x[i]);
      }
    });
  });
}

ir::ValueId cast(ir::Builder& builder, ir::ValueId x, DType to) {
  return builder.add_one(std::make_shared<Cast>(to), {x});
}

namespace {

ir::OpCase cast_case(std::string label, const ir::TensorType& from, DType to) {
  ir::OpCase example;
  example.label = std::move(label);
  example.op = std::make_shared<Cast>(to);
  example.inputs = {{from, {}, -9.0, 9.0}};
  example.oracle = [drop_fraction = !is_float(to)](const ir::Values& inputs) {
    ir::Values outputs = inputs;
    for (double& value : outputs[0]) {
      value = drop_fraction ? std::trunc(value) : value;
    }
    return outputs;
  };
  if (from.dtype == DType::kF64 && to == DType::kF64) {
    example.differentiable = {0};
  }
  return example;
}

std::vector<ir::OpCase> cast_cases(DType dtype) {
  return {cast_case("to f32", {dtype, {7, 3}}, DType::kF32),
          cast_case("to f64", {dtype, {5}}, DType::kF64),
          cast_case("to bf16", {dtype, {11}}, DType::kBF16),
          cast_case("to i32", {dtype, {13}}, DType::kI32),
          cast_case("from bf16", {DType::kBF16, {7}}, dtype),
          cast_case("from i32", {DType::kI32, {1}}, dtype),
          cast_case("from i64", {DType::kI64, {3}}, dtype),
          cast_case("i64 to i32", {DType::kI64, {3}}, DType::kI32),
          cast_case("empty", {dtype, {0}}, DType::kF32)};
}

}  // namespace

void register_cast(ir::Registry& registry) { registry.add("cast", cast_cases); }

}  // namespace wych::ops
