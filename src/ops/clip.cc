#include "ops/clip.h"

#include <algorithm>

#include "ops/row_chunks.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

template <class T>
void clamp(const ir::ExecContext& context, double limit) {
  const T* x = context.input(0).as<T>();
  T* y = context.output(0).as<T>();
  const T high = static_cast<T>(limit);
  context.pool->parallel_chunks(context.input(0).elements(), kElementsPerChunk, [&](i64 begin, i64 end) {
#pragma GCC ivdep
    for (i64 i = begin; i < end; ++i) {
      const T value = x[i] > high ? high : x[i];  // comparisons keep NaN
      y[i] = value < -high ? -high : value;
    }
  });
}

template <class T>
void clamp_dx(const ir::ExecContext& context, double limit) {
  const T* dy = context.input(0).as<T>();
  const T* x = context.input(1).as<T>();
  T* dx = context.output(0).as<T>();
  const T high = static_cast<T>(limit);
  context.pool->parallel_chunks(context.input(0).elements(), kElementsPerChunk, [&](i64 begin, i64 end) {
#pragma GCC ivdep
    for (i64 i = begin; i < end; ++i) {
      const T passed = x[i] <= high ? dy[i] : T{0};
      dx[i] = x[i] >= -high ? passed : T{0};
    }
  });
}

// The limit falls between the entries of x, where clip is smooth.
ir::CaseInput spread(DType dtype, i64 rows, i64 columns, double limit) {
  ir::CaseInput x{{dtype, {rows, columns}}};
  for (i64 i = 0; i < rows * columns; ++i) {
    x.values.push_back(limit * (static_cast<double>(i % 9) / 4.1 - 1.03));
  }
  return x;
}

ir::OpCase clip_case(DType dtype, i64 rows, i64 columns, double limit) {
  ir::OpCase example;
  example.label = fmt::format("{}x{} limit={}", rows, columns, limit);
  example.op = std::make_shared<Clip>(limit);
  example.inputs = {spread(dtype, rows, columns, limit)};
  example.oracle = [=](const ir::Values& in) {
    ir::Values out = {in[0]};
    for (double& value : out[0]) {
      value = std::min(std::max(value, -limit), limit);
    }
    return out;
  };
  example.differentiable = {0};
  return example;
}

ir::OpCase clip_dx_case(DType dtype, i64 rows, i64 columns, double limit) {
  ir::OpCase example;
  example.label = fmt::format("{}x{} limit={}", rows, columns, limit);
  example.op = std::make_shared<ClipDx>(limit);
  example.inputs = {{{dtype, {rows, columns}}}, spread(dtype, rows, columns, limit)};
  example.inputs[1].values[0] = limit;  // the border passes
  example.oracle = [=](const ir::Values& in) {
    ir::Values out = {in[0]};
    for (std::size_t i = 0; i < in[0].size(); ++i) {
      out[0][i] = std::abs(in[1][i]) <= limit ? in[0][i] : 0.0;
    }
    return out;
  };
  return example;
}

}  // namespace

void Clip::visit_attributes(ir::AttributeVisitor& visitor) const { visitor.visit("limit", limit_); }

Expected<std::vector<ir::TensorType>> Clip::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 1 || !is_activation(inputs[0].dtype)) {
    return ir::shape_error("needs x of f32, f64 or bf16", inputs);
  }
  return std::vector<ir::TensorType>{inputs[0]};
}

std::vector<ir::ValueId> Clip::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                   std::span<const ir::ValueId> cotangents) const {
  return {builder.add_one(std::make_shared<ClipDx>(limit_), {cotangents[0], node.inputs[0]})};
}

std::vector<ir::Alias> Clip::aliases() const { return {{0, 0, ir::AliasKind::kMay}}; }

void Clip::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) { clamp<T>(context, limit_); });
}

void ClipDx::visit_attributes(ir::AttributeVisitor& visitor) const { visitor.visit("limit", limit_); }

Expected<std::vector<ir::TensorType>> ClipDx::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 2 || !is_activation(inputs[0].dtype) || inputs[0] != inputs[1]) {
    return ir::shape_error("needs dy and x of one type, f32, f64 or bf16", inputs);
  }
  return std::vector<ir::TensorType>{inputs[0]};
}

std::vector<ir::Alias> ClipDx::aliases() const {
  return {{0, 0, ir::AliasKind::kMay}, {1, 0, ir::AliasKind::kMay}};
}

void ClipDx::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) { clamp_dx<T>(context, limit_); });
}

ir::ValueId clip(ir::Builder& builder, ir::ValueId x, double limit) {
  return builder.add_one(std::make_shared<Clip>(limit), {x});
}

void register_clip(ir::Registry& registry) {
  registry.add("clip", [](DType dtype) -> std::vector<ir::OpCase> {
    return {clip_case(dtype, 7, 5, 2.0), clip_case(dtype, 1, 1, 8.0), clip_case(dtype, 131, 257, 0.5)};
  });
  registry.add("clip_dx", [](DType dtype) -> std::vector<ir::OpCase> {
    return {clip_dx_case(dtype, 7, 5, 2.0), clip_dx_case(dtype, 1, 1, 8.0),
            clip_dx_case(dtype, 131, 257, 0.5)};
  });
}

}  // namespace wych::ops
