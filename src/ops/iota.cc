#include "ops/iota.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "ir/builder.h"
#include "ops/type_checks.h"

namespace wych::ops {

void Iota::visit_attributes(ir::AttributeVisitor& visitor) const {
  visitor.visit("count", count_);
  visitor.visit("dtype", dtype_name(dtype_));
}

Expected<std::vector<ir::TensorType>> Iota::infer(std::span<const ir::TensorType> inputs) const {
  if (!inputs.empty() || dtype_ == DType::kU8 || dtype_ == DType::kBF16 ||
      (dtype_ == DType::kF32 && count_ > 1 << 24)) {
    return ir::shape_error(fmt::format("counts to {} in {}: needs no input and a type that holds that",
                                       count_, dtype_name(dtype_)),
                           inputs);
  }
  return std::vector<ir::TensorType>{{dtype_, {count_}}};
}

void Iota::run_cpu(const ir::ExecContext& context) const {
  const auto count_up = [&]<class T>(T /*type*/) {
    T* y = context.output(0).as<T>();
    for (i64 i = 0; i < count_; ++i) {
      y[i] = static_cast<T>(i);
    }
  };
  switch (dtype_) {
    case DType::kI32:
      return count_up(i32{});
    case DType::kI64:
      return count_up(i64{});
    default:
      return dispatch_float(dtype_, count_up);
  }
}

void OneHot::visit_attributes(ir::AttributeVisitor& visitor) const {
  visitor.visit("width", width_);
  visitor.visit("dtype", dtype_name(dtype_));
}

Expected<std::vector<ir::TensorType>> OneHot::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 1 || !is_index(inputs[0], 1) || !is_compute(dtype_)) {
    return ir::shape_error("needs index i32[n] and gives f32 or f64", inputs);
  }
  return std::vector<ir::TensorType>{{dtype_, {inputs[0].shape[0], width_}}};
}

std::vector<ir::ValueId> OneHot::vjp(ir::Builder& /*builder*/, const ir::NodeValues& /*node*/,
                                     std::span<const ir::ValueId> /*cotangents*/) const {
  return {ir::kNoValue};
}

void OneHot::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(dtype_, [&]<class T>(T) {
    const i32* index = context.input(0).as<i32>();
    T* y = context.output(0).as<T>();
    for (i64 i = 0; i < context.input(0).elements(); ++i) {
      for (i64 e = 0; e < width_; ++e) {
        y[i * width_ + e] = static_cast<T>(index[i] == e);
      }
    }
  });
}

ir::ValueId iota(ir::Builder& builder, i64 count, DType dtype) {
  return builder.add_one(std::make_shared<Iota>(count, dtype), {});
}

ir::ValueId one_hot(ir::Builder& builder, ir::ValueId index, i64 width, DType dtype) {
  return builder.add_one(std::make_shared<OneHot>(width, dtype), {index});
}

namespace {

ir::OpCase constant_case(std::string label, std::shared_ptr<const ir::Op> op, std::vector<double> expected) {
  ir::OpCase example;
  example.label = std::move(label);
  example.op = std::move(op);
  example.oracle = [expected = std::move(expected)](const ir::Values& /*inputs*/) {
    return ir::Values{expected};
  };
  return example;
}

std::vector<ir::OpCase> iota_cases(DType dtype) {
  return {constant_case("5", std::make_shared<Iota>(5, dtype), {0, 1, 2, 3, 4}),
          constant_case("none", std::make_shared<Iota>(0, dtype), {}),
          constant_case("i32", std::make_shared<Iota>(3, DType::kI32), {0, 1, 2}),
          constant_case("i64", std::make_shared<Iota>(1, DType::kI64), {0})};
}

std::vector<ir::OpCase> one_hot_cases(DType dtype) {
  ir::OpCase example = constant_case("4 of 3, one outside", std::make_shared<OneHot>(3, dtype),
                                     {0, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0});
  example.inputs = {{{DType::kI32, {4}}, {1, -1, 2, 0}}};
  ir::OpCase single = constant_case("1 of 1", std::make_shared<OneHot>(1, dtype), {1});
  single.inputs = {{{DType::kI32, {1}}, {0}}};
  return {std::move(example), std::move(single)};
}

}  // namespace

void register_iota(ir::Registry& registry) {
  registry.add("iota", iota_cases);
  registry.add("one_hot", one_hot_cases);
}

}  // namespace wych::ops
