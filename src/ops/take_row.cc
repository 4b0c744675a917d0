#include "ops/take_row.h"

#include <algorithm>

#include "ops/type_checks.h"

namespace wych::ops {
namespace {

ir::OpCase take_row_case(DType dtype, i64 rows, i64 width, i64 index) {
  ir::OpCase example;
  example.label = fmt::format("R={} d={} index={}", rows, width, index);
  example.op = std::make_shared<TakeRow>();
  example.inputs = {{{dtype, {rows, width}}}, {{DType::kI32, {1}}, {static_cast<double>(index)}}};
  example.oracle = [=](const ir::Values& in) {
    const auto first = in[0].begin() + index * width;
    return ir::Values{std::vector<double>(first, first + width)};
  };
  return example;
}

}  // namespace

Expected<std::vector<ir::TensorType>> TakeRow::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 2 || !is_activation(inputs[0], 2) || !is_type(inputs[1], DType::kI32, {1})) {
    return ir::shape_error("needs x A[R,d] and index i32[1], A = f32, f64 or bf16", inputs);
  }
  return std::vector<ir::TensorType>{{inputs[0].dtype, {1, inputs[0].shape[1]}}};
}

std::vector<ir::ValueId> TakeRow::vjp(ir::Builder& /*builder*/, const ir::NodeValues& node,
                                      std::span<const ir::ValueId> /*cotangents*/) const {
  WYCH_CHECK(false, "take_row is for generation and has no gradient");
  return std::vector<ir::ValueId>(node.inputs.size(), ir::kNoValue);
}

void TakeRow::run_cpu(const ir::ExecContext& context) const {
  const i64 width = context.input(0).dim(1);
  const i64 index = context.input(1).as<i32>()[0];
  WYCH_CHECK(index >= 0 && index < context.input(0).dim(0), "row {} of {}", index, context.input(0).dim(0));
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) {
    std::copy_n(context.input(0).as<T>() + index * width, width, context.output(0).as<T>());
  });
}

ir::ValueId take_row(ir::Builder& builder, ir::ValueId x, ir::ValueId index) {
  return builder.add_one(std::make_shared<TakeRow>(), {x, index});
}

void register_take_row(ir::Registry& registry) {
  registry.add("take_row", [](DType dtype) -> std::vector<ir::OpCase> {
    return {take_row_case(dtype, 7, 5, 3), take_row_case(dtype, 1, 1, 0), take_row_case(dtype, 13, 131, 12)};
  });
}

}  // namespace wych::ops
