#include "ops/slice.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "ir/builder.h"
#include "ops/fill.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

constexpr bool is_copied(DType dtype) {
  return is_compute(dtype) || dtype == DType::kI32 || dtype == DType::kI64;
}

ir::Shape with_extent(const ir::Shape& shape, int axis, i64 extent) {
  std::vector<i64> extents(shape.dims().begin(), shape.dims().end());
  extents[static_cast<std::size_t>(axis)] = extent;
  return ir::Shape(extents);
}

// A tensor seen from one axis: `outer` blocks of `bytes` contiguous bytes.
struct Blocks {
  i64 outer = 1;
  i64 bytes = 1;
};

Blocks blocks(const ir::TensorType& type, int axis) {
  Blocks result;
  for (int i = 0; i < axis; ++i) {
    result.outer *= type.shape[i];
  }
  result.bytes = dtype_bytes(type.dtype);
  for (int i = axis; i < type.shape.rank(); ++i) {
    result.bytes *= type.shape[i];
  }
  return result;
}

// Copies the blocks of the narrower of two tensors from or to a place inside those of the wider one.
void copy_blocks(const std::byte* from, i64 from_stride, std::byte* to, i64 to_stride, const Blocks& narrow) {
  for (i64 i = 0; i < narrow.outer && narrow.bytes > 0; ++i) {
    std::memcpy(to + i * to_stride, from + i * from_stride, static_cast<std::size_t>(narrow.bytes));
  }
}

}  // namespace

void Slice::visit_attributes(ir::AttributeVisitor& visitor) const {
  visitor.visit("axis", i64{axis_});
  visitor.visit("begin", begin_);
  visitor.visit("length", length_);
}

Expected<std::vector<ir::TensorType>> Slice::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 1 || !is_copied(inputs[0].dtype) || axis_ < 0 || axis_ >= inputs[0].shape.rank() ||
      begin_ < 0 || length_ < 0 || begin_ + length_ > inputs[0].shape[axis_]) {
    return ir::shape_error(
        fmt::format("needs one f32, f64, i32 or i64 input with entries {} to {} on axis {}", begin_,
                    begin_ + length_, axis_),
        inputs);
  }
  return std::vector<ir::TensorType>{{inputs[0].dtype, with_extent(inputs[0].shape, axis_, length_)}};
}

std::vector<ir::ValueId> Slice::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                    std::span<const ir::ValueId> cotangents) const {
  const ir::TensorType type = builder.type(node.inputs[0]);
  if (!is_float(type.dtype)) {
    return {ir::kNoValue};
  }
  const auto zeros = [&](i64 length) {
    return fill(builder, 0.0, {type.dtype, with_extent(type.shape, axis_, length)});
  };
  std::vector<ir::ValueId> parts;
  if (begin_ > 0) {
    parts.push_back(zeros(begin_));
  }
  parts.push_back(cotangents[0]);
  if (const i64 rest = type.shape[axis_] - begin_ - length_; rest > 0) {
    parts.push_back(zeros(rest));
  }
  return {concat(builder, std::move(parts), axis_)};
}

void Slice::run_cpu(const ir::ExecContext& context) const {
  const ir::TensorType& type = *context.input(0).type;
  const Blocks wide = blocks(type, axis_);
  const Blocks narrow = blocks(*context.output(0).type, axis_);
  const i64 entry_bytes = type.shape[axis_] == 0 ? 0 : wide.bytes / type.shape[axis_];
  copy_blocks(context.input(0).data + begin_ * entry_bytes, wide.bytes, context.output(0).data, narrow.bytes,
              narrow);
}

void Concat::visit_attributes(ir::AttributeVisitor& visitor) const { visitor.visit("axis", i64{axis_}); }

Expected<std::vector<ir::TensorType>> Concat::infer(std::span<const ir::TensorType> inputs) const {
  bool right = !inputs.empty() && is_copied(inputs[0].dtype) && axis_ >= 0 && axis_ < inputs[0].shape.rank();
  i64 extent = 0;
  for (std::size_t i = 0; i < inputs.size() && right; ++i) {
    right = inputs[i].dtype == inputs[0].dtype && inputs[i].shape.rank() == inputs[0].shape.rank() &&
            with_extent(inputs[i].shape, axis_, 0) == with_extent(inputs[0].shape, axis_, 0);
    extent += right ? inputs[i].shape[axis_] : 0;
  }
  if (!right) {
    return ir::shape_error(
        fmt::format("needs f32, f64, i32 or i64 inputs of one type that differ on axis {} alone", axis_),
        inputs);
  }
  return std::vector<ir::TensorType>{{inputs[0].dtype, with_extent(inputs[0].shape, axis_, extent)}};
}

std::vector<ir::ValueId> Concat::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                     std::span<const ir::ValueId> cotangents) const {
  std::vector<ir::ValueId> result;
  i64 begin = 0;
  for (const ir::ValueId part : node.inputs) {
    const ir::TensorType type = builder.type(part);
    const i64 length = type.shape[axis_];
    result.push_back(is_float(type.dtype) ? slice(builder, cotangents[0], axis_, begin, length)
                                          : ir::kNoValue);
    begin += length;
  }
  return result;
}

void Concat::run_cpu(const ir::ExecContext& context) const {
  const Blocks wide = blocks(*context.output(0).type, axis_);
  std::byte* to = context.output(0).data;
  for (const ir::View& part : context.inputs) {
    const Blocks narrow = blocks(*part.type, axis_);
    copy_blocks(part.data, narrow.bytes, to, wide.bytes, narrow);
    to += narrow.bytes;
  }
}

ir::ValueId slice(ir::Builder& builder, ir::ValueId x, int axis, i64 begin, i64 length) {
  return builder.add_one(std::make_shared<Slice>(axis, begin, length), {x});
}

ir::ValueId concat(ir::Builder& builder, std::vector<ir::ValueId> parts, int axis) {
  return builder.add_one(std::make_shared<Concat>(axis), std::move(parts));
}

namespace {

// Cases name the expected result as a list of source elements: {input, element}, by hand.
using Sources = std::vector<std::pair<std::size_t, std::size_t>>;

ir::OpCase copy_case(std::string label, std::shared_ptr<const ir::Op> op,
                     const std::vector<ir::TensorType>& types, Sources sources) {
  ir::OpCase example;
  example.label = std::move(label);
  example.op = std::move(op);
  for (std::size_t i = 0; i < types.size(); ++i) {
    example.inputs.push_back({types[i], {}, -99.0, 99.0});
    if (is_float(types[i].dtype)) {
      example.differentiable.push_back(static_cast<int>(i));
    }
  }
  example.oracle = [sources = std::move(sources)](const ir::Values& inputs) {
    std::vector<double> result;
    for (const auto& [input, element] : sources) {
      result.push_back(inputs[input][element]);
    }
    return ir::Values{result};
  };
  return example;
}

std::vector<ir::OpCase> slice_cases(DType dtype) {
  const auto of = [](int axis, i64 begin, i64 length) {
    return std::make_shared<Slice>(axis, begin, length);
  };
  return {
      copy_case("rows 1 to 3 of 4 x 2", of(0, 1, 2), {{dtype, {4, 2}}}, {{0, 2}, {0, 3}, {0, 4}, {0, 5}}),
      copy_case("first column of 3 x 2", of(1, 0, 1), {{dtype, {3, 2}}}, {{0, 0}, {0, 2}, {0, 4}}),
      copy_case("last of the middle axis of 2 x 3 x 1", of(1, 2, 1), {{dtype, {2, 3, 1}}}, {{0, 2}, {0, 5}}),
      copy_case("nothing of 5", of(0, 3, 0), {{dtype, {5}}}, {}),
      copy_case("all of 1", of(0, 0, 1), {{dtype, {1}}}, {{0, 0}}),
      copy_case("i32", of(0, 1, 2), {{DType::kI32, {3}}}, {{0, 1}, {0, 2}})};
}

std::vector<ir::OpCase> concat_cases(DType dtype) {
  const auto along = [](int axis) { return std::make_shared<Concat>(axis); };
  return {copy_case("2 x 1 and 2 x 2 along columns", along(1), {{dtype, {2, 1}}, {dtype, {2, 2}}},
                    {{0, 0}, {1, 0}, {1, 1}, {0, 1}, {1, 2}, {1, 3}}),
          copy_case("1, none and 2 along rows", along(0), {{dtype, {1}}, {dtype, {0}}, {dtype, {2}}},
                    {{0, 0}, {2, 0}, {2, 1}}),
          copy_case("one part", along(0), {{dtype, {3}}}, {{0, 0}, {0, 1}, {0, 2}}),
          copy_case("i64", along(0), {{DType::kI64, {1}}, {DType::kI64, {1}}}, {{0, 0}, {1, 0}})};
}

}  // namespace

void register_slice(ir::Registry& registry) {
  registry.add("slice", slice_cases);
  registry.add("concat", concat_cases);
}

}  // namespace wych::ops
