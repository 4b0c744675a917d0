#include "ops/reshape.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "ir/builder.h"
#include "ops/type_checks.h"

namespace wych::ops {

void Reshape::visit_attributes(ir::AttributeVisitor& visitor) const {
  visitor.visit("shape", fmt::format("[{}]", fmt::join(shape_.dims(), ",")));
}

Expected<std::vector<ir::TensorType>> Reshape::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 1 || inputs[0].dtype == DType::kU8 || inputs[0].elements() != shape_.elements()) {
    return ir::shape_error(fmt::format("needs one input of {} elements", shape_.elements()), inputs);
  }
  return std::vector<ir::TensorType>{{inputs[0].dtype, shape_}};
}

std::vector<ir::ValueId> Reshape::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                      std::span<const ir::ValueId> cotangents) const {
  if (!is_float(builder.type(node.inputs[0]).dtype)) {
    return {ir::kNoValue};
  }
  const ir::Shape shape = builder.type(node.inputs[0]).shape;
  return {reshape(builder, cotangents[0], shape)};
}

void Transpose::visit_attributes(ir::AttributeVisitor& visitor) const {
  visitor.visit("order", fmt::format("[{}]", fmt::join(order_, ",")));
}

Expected<std::vector<ir::TensorType>> Transpose::infer(std::span<const ir::TensorType> inputs) const {
  std::vector<int> sorted = order_;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    WYCH_CHECK(sorted[i] == static_cast<int>(i), "order [{}] is no permutation", fmt::join(order_, ","));
  }
  if (inputs.size() != 1 || !is_compute(inputs[0], static_cast<int>(order_.size()))) {
    return ir::shape_error(fmt::format("needs one f32 or f64 input of rank {}", order_.size()), inputs);
  }
  std::vector<i64> extents;
  for (const int axis : order_) {
    extents.push_back(inputs[0].shape[axis]);
  }
  return std::vector<ir::TensorType>{{inputs[0].dtype, ir::Shape(extents)}};
}

std::vector<ir::ValueId> Transpose::vjp(ir::Builder& builder, const ir::NodeValues& /*node*/,
                                        std::span<const ir::ValueId> cotangents) const {
  std::vector<int> inverse(order_.size());
  for (std::size_t i = 0; i < order_.size(); ++i) {
    inverse[static_cast<std::size_t>(order_[i])] = static_cast<int>(i);
  }
  return {transpose(builder, cotangents[0], std::move(inverse))};
}

void Transpose::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.output(0).type->dtype, [&]<class T>(T) {
    const ir::Shape& from = context.input(0).type->shape;
    const ir::Shape& to = context.output(0).type->shape;
    const T* x = context.input(0).as<T>();
    T* y = context.output(0).as<T>();
    // stride[i]: distance in x between neighbours along axis i of y.
    std::array<i64, ir::Shape::kMaxRank> stride{};
    for (std::size_t i = 0; i < order_.size(); ++i) {
      i64 step = 1;
      for (int axis = order_[i] + 1; axis < from.rank(); ++axis) {
        step *= from[axis];
      }
      stride[i] = step;
    }
    for (i64 element = 0; element < to.elements(); ++element) {
      i64 rest = element;
      i64 source = 0;
      for (int axis = to.rank() - 1; axis >= 0; --axis) {
        source += rest % to[axis] * stride[static_cast<std::size_t>(axis)];
        rest /= to[axis];
      }
      y[element] = x[source];
    }
  });
}

ir::ValueId reshape(ir::Builder& builder, ir::ValueId x, const ir::Shape& shape) {
  return builder.add_one(std::make_shared<Reshape>(shape), {x});
}

ir::ValueId transpose(ir::Builder& builder, ir::ValueId x, std::vector<int> order) {
  return builder.add_one(std::make_shared<Transpose>(std::move(order)), {x});
}

namespace {

ir::OpCase reshape_case(std::string label, const ir::TensorType& from, const ir::Shape& to) {
  ir::OpCase example;
  example.label = std::move(label);
  example.op = std::make_shared<Reshape>(to);
  example.inputs = {{from, {}, -9.0, 9.0}};
  example.oracle = [](const ir::Values& inputs) { return inputs; };
  if (is_float(from.dtype)) {
    example.differentiable = {0};
  }
  return example;
}

std::vector<ir::OpCase> reshape_cases(DType dtype) {
  return {reshape_case("3 x 5 to 15", {dtype, {3, 5}}, {15}),
          reshape_case("6 to 1 x 2 x 3", {dtype, {6}}, {1, 2, 3}),
          reshape_case("empty", {dtype, {0, 4}}, {7, 0}), reshape_case("i32", {DType::kI32, {3, 2}}, {2, 3})};
}

ir::OpCase transpose_case(std::string label, DType dtype, const ir::Shape& shape, std::vector<int> order,
                          std::vector<i64> source) {
  ir::OpCase example;
  example.label = std::move(label);
  example.op = std::make_shared<Transpose>(std::move(order));
  example.inputs = {{{dtype, shape}}};
  example.oracle = [source = std::move(source)](const ir::Values& inputs) {
    std::vector<double> result;
    for (const i64 index : source) {
      result.push_back(inputs[0][static_cast<std::size_t>(index)]);
    }
    return ir::Values{result};
  };
  example.differentiable = {0};
  return example;
}

// Larger than a tile: y[a, b, c] is element a * step_a + b * step_b + c * step_c of x.
ir::OpCase strided_case(std::string label, DType dtype, const ir::Shape& shape, std::vector<int> order,
                        const std::array<i64, 3>& step) {
  std::vector<i64> source;
  for (i64 a = 0; a < shape[order[0]]; ++a) {
    for (i64 b = 0; b < shape[order[1]]; ++b) {
      for (i64 c = 0; c < shape[order[2]]; ++c) {
        source.push_back(a * step[0] + b * step[1] + c * step[2]);
      }
    }
  }
  return transpose_case(std::move(label), dtype, shape, std::move(order), std::move(source));
}

// The last argument lists, by hand, which element of x each element of y is.
std::vector<ir::OpCase> transpose_cases(DType dtype) {
  return {transpose_case("2 x 3", dtype, {2, 3}, {1, 0}, {0, 3, 1, 4, 2, 5}),
          transpose_case("identity", dtype, {2, 2}, {0, 1}, {0, 1, 2, 3}),
          transpose_case("2 x 1 x 3 rotated", dtype, {2, 1, 3}, {2, 0, 1}, {0, 3, 1, 4, 2, 5}),
          transpose_case("2 x 2 x 3, heads forward", dtype, {2, 2, 3}, {1, 0, 2},
                         {0, 1, 2, 6, 7, 8, 3, 4, 5, 9, 10, 11}),
          strided_case("35 x 3 x 66 reversed", dtype, {35, 3, 66}, {2, 1, 0}, {1, 66, 198}),
          strided_case("35 x 3 x 66 rotated", dtype, {35, 3, 66}, {1, 2, 0}, {66, 1, 198}),
          transpose_case("empty", dtype, {0, 3}, {1, 0}, {})};
}

}  // namespace

void register_reshape(ir::Registry& registry) {
  registry.add("reshape", reshape_cases);
  registry.add("transpose", transpose_cases);
}

}  // namespace wych::ops
