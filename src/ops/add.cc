#include "ops/add.h"

#include <utility>

namespace wych::ops {
namespace {

ir::Values sum(const ir::Values& inputs) {
  ir::Values outputs = {inputs[0]};
  for (std::size_t i = 0; i < inputs[0].size(); ++i) {
    outputs[0][i] += inputs[1][i];
  }
  return outputs;
}

ir::OpCase add_case(std::string label, const ir::TensorType& type) {
  const bool floating = is_float(type.dtype);
  const double bound = floating ? 1.0 : 1000.0;
  ir::OpCase example;
  example.label = std::move(label);
  example.op = std::make_shared<ir::Add>();
  example.inputs = {{type, {}, -bound, bound}, {type, {}, -bound, bound}};
  example.oracle = sum;
  if (floating && type.dtype != DType::kBF16) {  // differences of rounded values say nothing
    example.differentiable = {0, 1};
  }
  return example;
}

std::vector<ir::OpCase> add_cases(DType dtype) {
  return {
      add_case("7 x 3", {dtype, {7, 3}}),   add_case("one element", {dtype, {1}}),
      add_case("empty", {dtype, {0, 5}}),   add_case("more than one chunk", {dtype, {3, (1 << 14) / 3 + 1}}),
      add_case("i32", {DType::kI32, {17}}), add_case("i64", {DType::kI64, {2, 5}})};
}

}  // namespace

void register_add(ir::Registry& registry) { registry.add("add", add_cases); }

}  // namespace wych::ops
