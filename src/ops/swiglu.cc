#include "ops/swiglu.h"

#include <cmath>

#include "kernels/vector_math.h"
#include "ops/row_chunks.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

template <class T>
void activate(const ir::ExecContext& context) {
  const i64 width = context.output(0).dim(1);
  const i64 rows = context.output(0).dim(0);
  const T* gu = context.input(0).as<T>();
  T* a = context.output(0).as<T>();
  context.pool->parallel_chunks(rows, rows_per_chunk(2 * width), [&](i64 begin, i64 end) {
    for (i64 r = begin; r < end; ++r) {
      const T* gate = gu + 2 * r * width;
      const T* up = gate + width;
      T* to = a + r * width;
#pragma GCC ivdep
      for (i64 j = 0; j < width; ++j) {
        to[j] = kernels::silu(gate[j]) * up[j];
      }
    }
  });
}

template <class T>
void activate_dx(const ir::ExecContext& context) {
  const i64 width = context.input(0).dim(1);
  const i64 rows = context.input(0).dim(0);
  const T* da = context.input(0).as<T>();
  const T* gu = context.input(1).as<T>();
  T* dgu = context.output(0).as<T>();
  context.pool->parallel_chunks(rows, rows_per_chunk(2 * width), [&](i64 begin, i64 end) {
    for (i64 r = begin; r < end; ++r) {
      const T* from = da + r * width;
      const T* gate = gu + 2 * r * width;
      const T* up = gate + width;
      T* dgate = dgu + 2 * r * width;
      T* dup = dgate + width;
#pragma GCC ivdep
      for (i64 j = 0; j < width; ++j) {
        const T g = gate[j];
        const T s = kernels::sigmoid(g);
        const T d = from[j] * s;
        dgate[j] = d * up[j] * (T{1} + g * (T{1} - s));
        dup[j] = d * g;
      }
    }
  });
}

// Random, and the seedless sequence is the same for every dtype.
ir::CaseInput input(DType dtype, i64 rows, i64 columns, double phase) {
  ir::CaseInput input{{dtype, {rows, columns}}};
  for (i64 i = 0; i < rows * columns; ++i) {
    input.values.push_back(3 * std::sin(static_cast<double>(i) + phase));
  }
  return input;
}

ir::OpCase swiglu_case(DType dtype, i64 rows, i64 width) {
  ir::OpCase example;
  example.label = fmt::format("R={} f={}", rows, width);
  example.op = std::make_shared<Swiglu>();
  example.inputs = {input(dtype, rows, 2 * width, 0.3)};
  example.oracle = [f = static_cast<std::size_t>(width)](const ir::Values& in) {
    ir::Values out(1);
    for (std::size_t i = 0; i < in[0].size() / 2; ++i) {
      const std::size_t gate = i / f * 2 * f + i % f;
      out[0].push_back(in[0][gate] / (1 + std::exp(-in[0][gate])) * in[0][gate + f]);
    }
    return out;
  };
  example.differentiable = {0};
  return example;
}

ir::OpCase swiglu_dx_case(DType dtype, i64 rows, i64 width) {
  ir::OpCase example;
  example.label = fmt::format("R={} f={}", rows, width);
  example.op = std::make_shared<SwigluDx>();
  example.inputs = {input(dtype, rows, width, 0.9), input(dtype, rows, 2 * width, 0.3)};
  example.oracle = [f = static_cast<std::size_t>(width)](const ir::Values& in) {
    ir::Values out = {in[1]};
    for (std::size_t i = 0; i < in[0].size(); ++i) {
      const std::size_t gate = i / f * 2 * f + i % f;
      const double g = in[1][gate];
      const double s = 1 / (1 + std::exp(-g));
      out[0][gate] = in[0][i] * in[1][gate + f] * (s + g * s * (1 - s));
      out[0][gate + f] = in[0][i] * g * s;
    }
    return out;
  };
  return example;
}

template <ir::OpCase (*kCase)(DType, i64, i64)>
std::vector<ir::OpCase> cases(DType dtype) {
  return {kCase(dtype, 7, 5), kCase(dtype, 1, 1), kCase(dtype, 67, 131), kCase(dtype, 5, 264)};
}

}  // namespace

Expected<std::vector<ir::TensorType>> Swiglu::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 1 || !is_activation(inputs[0], 2) || inputs[0].shape[1] % 2 != 0) {
    return ir::shape_error("needs gu A[R,2f], A = f32, f64 or bf16", inputs);
  }
  return std::vector<ir::TensorType>{{inputs[0].dtype, {inputs[0].shape[0], inputs[0].shape[1] / 2}}};
}

std::vector<ir::ValueId> Swiglu::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                     std::span<const ir::ValueId> cotangents) const {
  return {builder.add_one(std::make_shared<SwigluDx>(), {cotangents[0], node.inputs[0]})};
}

void Swiglu::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) { activate<T>(context); });
}

Expected<std::vector<ir::TensorType>> SwigluDx::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 2 || !is_activation(inputs[0], 2) ||
      !is_type(inputs[1], inputs[0].dtype, {inputs[0].shape[0], 2 * inputs[0].shape[1]})) {
    return ir::shape_error("needs da A[R,f] and gu A[R,2f], A = f32, f64 or bf16", inputs);
  }
  return std::vector<ir::TensorType>{inputs[1]};
}

std::vector<ir::Alias> SwigluDx::aliases() const { return {{1, 0, ir::AliasKind::kMay}}; }

void SwigluDx::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) { activate_dx<T>(context); });
}

ir::ValueId swiglu(ir::Builder& builder, ir::ValueId gu) {
  return builder.add_one(std::make_shared<Swiglu>(), {gu});
}

void register_swiglu(ir::Registry& registry) {
  registry.add("swiglu", cases<swiglu_case>);
  registry.add("swiglu_dx", cases<swiglu_dx_case>);
}

}  // namespace wych::ops
