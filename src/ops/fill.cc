// Writes a constant, in parallel for the sake of large states.
#include "ops/fill.h"

#include <algorithm>
#include <cmath>

#include "ir/builder.h"
#include "ops/row_chunks.h"

namespace wych::ops {
namespace {

template <class T>
void fill_values(const ir::ExecContext& context, double value) {
  T* y = context.output(0).as<T>();
  context.pool->parallel_chunks(context.output(0).elements(), kElementsPerChunk, [&](i64 begin, i64 end) {
    std::fill(y + begin, y + end, static_cast<T>(value));
  });
}

ir::OpCase fill_case(double value, const ir::TensorType& type) {
  ir::OpCase example;
  example.label = fmt::format("{} elements of rank {} are {}", type.elements(), type.shape.rank(), value);
  example.op = std::make_shared<Fill>(value, type);
  example.oracle = [value, n = type.elements()](const ir::Values&) {
    return ir::Values{std::vector<double>(static_cast<std::size_t>(n), value)};
  };
  return example;
}

std::vector<ir::OpCase> fill_cases(DType dtype) {
  return {fill_case(0.1, {dtype, {7, 3}}),        fill_case(0, {dtype, {1}}),
          fill_case(1, {dtype, {0, 5}}),          fill_case(-2.5, {dtype, {kElementsPerChunk + 1}}),
          fill_case(-100, {DType::kI32, {2, 3}}), fill_case(5, {DType::kI64, {3}})};
}

}  // namespace

void Fill::visit_attributes(ir::AttributeVisitor& visitor) const {
  visitor.visit("value", value_);
  visitor.visit("type", std::string_view(type_.text()));
}

Expected<std::vector<ir::TensorType>> Fill::infer(std::span<const ir::TensorType> inputs) const {
  const DType dtype = type_.dtype;
  const bool integer = dtype == DType::kI32 || dtype == DType::kI64;
  if (!inputs.empty() || !(integer || dtype == DType::kF32 || dtype == DType::kF64) ||
      (integer && value_ != std::floor(value_))) {
    return ir::shape_error(
        fmt::format("takes no inputs and makes f32, f64, or whole i32 or i64, not {} of {}", type_.text(),
                    value_),
        inputs);
  }
  return std::vector<ir::TensorType>{type_};
}

void Fill::run_cpu(const ir::ExecContext& context) const {
  switch (type_.dtype) {
    case DType::kF32:
      return fill_values<float>(context, value_);
    case DType::kF64:
      return fill_values<double>(context, value_);
    case DType::kI32:
      return fill_values<i32>(context, value_);
    default:
      return fill_values<i64>(context, value_);
  }
}

ir::ValueId fill(ir::Builder& builder, double value, const ir::TensorType& type) {
  return builder.add_one(std::make_shared<Fill>(value, type), {});
}

void register_fill(ir::Registry& registry) { registry.add("fill", fill_cases); }

}  // namespace wych::ops
