#include "ops/gather_rows.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "ir/builder.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

// The row that entry `i` names, or -1. Another index is a programmer's fault.
i64 checked_row(const i32* index, i64 i, i64 num_rows) {
  WYCH_CHECK(index[i] >= -1 && index[i] < num_rows, "index {} of entry {} is outside [-1, {})", index[i], i,
             num_rows);
  return index[i];
}

}  // namespace

Expected<std::vector<ir::TensorType>> GatherRows::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 2 || !is_compute(inputs[0], 2) || !is_index(inputs[1], 1)) {
    return ir::shape_error("needs x F[R,d] and index i32[n]", inputs);
  }
  return std::vector<ir::TensorType>{{inputs[0].dtype, {inputs[1].shape[0], inputs[0].shape[1]}}};
}

std::vector<ir::ValueId> GatherRows::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                         std::span<const ir::ValueId> cotangents) const {
  const i64 num_rows = builder.type(node.inputs[0]).shape[0];
  return {scatter_add_rows(builder, cotangents[0], node.inputs[1], num_rows), ir::kNoValue};
}

void GatherRows::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.output(0).type->dtype, [&]<class T>(T) {
    const T* x = context.input(0).as<T>();
    const i32* index = context.input(1).as<i32>();
    T* y = context.output(0).as<T>();
    const i64 width = context.output(0).dim(1);
    for (i64 i = 0; i < context.output(0).dim(0); ++i) {
      const i64 row = checked_row(index, i, context.input(0).dim(0));
      if (row < 0) {
        std::fill_n(y + i * width, width, T{0});
      } else {
        std::copy_n(x + row * width, width, y + i * width);
      }
    }
  });
}

void ScatterAddRows::visit_attributes(ir::AttributeVisitor& visitor) const {
  visitor.visit("num_rows", num_rows_);
}

Expected<std::vector<ir::TensorType>> ScatterAddRows::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 2 || !is_compute(inputs[0], 2) ||
      !is_type(inputs[1], DType::kI32, {inputs[0].shape[0]})) {
    return ir::shape_error("needs x F[n,d] and index i32[n]", inputs);
  }
  return std::vector<ir::TensorType>{{inputs[0].dtype, {num_rows_, inputs[0].shape[1]}}};
}

std::vector<ir::ValueId> ScatterAddRows::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                             std::span<const ir::ValueId> cotangents) const {
  return {gather_rows(builder, cotangents[0], node.inputs[1]), ir::kNoValue};
}

i64 ScatterAddRows::cuda_workspace(std::span<const ir::TensorType> inputs,
                                   std::span<const ir::TensorType> outputs,
                                   const CudaTarget& /*target*/) const {
  const i64 pieces = ScatterPieces(inputs[1].shape[0], num_rows_).count;
  return pieces > 1 ? pieces * outputs[0].bytes() : 0;
}

void ScatterAddRows::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.output(0).type->dtype, [&]<class T>(T) {
    const T* x = context.input(0).as<T>();
    const i32* index = context.input(1).as<i32>();
    T* y = context.output(0).as<T>();
    const i64 width = context.output(0).dim(1);
    std::fill_n(y, context.output(0).elements(), T{0});
    for (i64 i = 0; i < context.input(0).dim(0); ++i) {
      const i64 row = checked_row(index, i, num_rows_);
      for (i64 column = 0; column < width && row >= 0; ++column) {
        y[row * width + column] += x[i * width + column];
      }
    }
  });
}

ir::ValueId gather_rows(ir::Builder& builder, ir::ValueId x, ir::ValueId index) {
  return builder.add_one(std::make_shared<GatherRows>(), {x, index});
}

ir::ValueId scatter_add_rows(ir::Builder& builder, ir::ValueId x, ir::ValueId index, i64 num_rows) {
  return builder.add_one(std::make_shared<ScatterAddRows>(num_rows), {x, index});
}

namespace {

ir::Values expected_gather(const ir::Values& inputs, std::size_t width) {
  std::vector<double> result;
  for (const double row : inputs[1]) {
    for (std::size_t column = 0; column < width; ++column) {
      result.push_back(row < 0 ? 0 : inputs[0][static_cast<std::size_t>(row) * width + column]);
    }
  }
  return {result};
}

// As a product with the one-hot matrix of the index.
ir::Values expected_scatter(const ir::Values& inputs, std::size_t num_rows, std::size_t width) {
  std::vector<double> result(num_rows * width);
  for (std::size_t row = 0; row < num_rows; ++row) {
    for (std::size_t column = 0; column < width; ++column) {
      for (std::size_t i = 0; i < inputs[1].size(); ++i) {
        const double here = inputs[1][i] == static_cast<double>(row) ? 1 : 0;
        result[row * width + column] += here * inputs[0][i * width + column];
      }
    }
  }
  return {result};
}

ir::OpCase gather_case(std::string label, DType dtype, i64 num_rows, i64 width, std::vector<double> index) {
  ir::OpCase example;
  example.label = std::move(label);
  example.op = std::make_shared<GatherRows>();
  const auto count = static_cast<i64>(index.size());
  example.inputs = {{{dtype, {num_rows, width}}}, {{DType::kI32, {count}}, std::move(index)}};
  example.oracle = [width](const ir::Values& inputs) {
    return expected_gather(inputs, static_cast<std::size_t>(width));
  };
  example.differentiable = {0};
  return example;
}

ir::OpCase scatter_case(std::string label, DType dtype, i64 num_rows, i64 width, std::vector<double> index) {
  ir::OpCase example;
  example.label = std::move(label);
  example.op = std::make_shared<ScatterAddRows>(num_rows);
  const auto count = static_cast<i64>(index.size());
  example.inputs = {{{dtype, {count, width}}}, {{DType::kI32, {count}}, std::move(index)}};
  example.oracle = [=](const ir::Values& inputs) {
    return expected_scatter(inputs, static_cast<std::size_t>(num_rows), static_cast<std::size_t>(width));
  };
  example.differentiable = {0};
  example.reduction_length = count;
  return example;
}

// 0, 7, 14, ... modulo num_rows + 1, less one: all rows and -1.
std::vector<double> spread_index(i64 count, i64 num_rows) {
  std::vector<double> index;
  for (i64 i = 0; i < count; ++i) {
    index.push_back(static_cast<double>(7 * i % (num_rows + 1) - 1));
  }
  return index;
}

std::vector<ir::OpCase> gather_cases(DType dtype) {
  return {gather_case("repeats and a hole", dtype, 5, 3, {4, 0, 4, -1, 2, 0, 0}),
          gather_case("one by one", dtype, 1, 1, {0}), gather_case("no index", dtype, 3, 2, {})};
}

std::vector<ir::OpCase> scatter_cases(DType dtype) {
  return {scatter_case("repeats and a hole", dtype, 5, 3, {4, 0, 4, -1, 2, 0, 0}),
          scatter_case("one by one", dtype, 1, 1, {0}),
          scatter_case("all skipped", dtype, 3, 2, {-1, -1}),
          scatter_case("no rows in", dtype, 3, 2, {}),
          scatter_case("wide rows", dtype, 37, 259, spread_index(71, 37)),
          scatter_case("several pieces", dtype, 300, 2, spread_index(1301, 300)),
          scatter_case("many into few", dtype, 2, 3, spread_index(600, 2))};
}

}  // namespace

void register_gather_rows(ir::Registry& registry) {
  registry.add("gather_rows", gather_cases);
  registry.add("scatter_add_rows", scatter_cases);
}

}  // namespace wych::ops
