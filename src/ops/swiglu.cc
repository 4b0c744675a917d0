#include "ops/swiglu.h"

#include <cmath>
#include <limits>

#include "kernels/vector_math.h"
#include "ops/row_chunks.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

// Rows that are defined: all, or those before the end of the last segment.
i64 used_rows(const ir::ExecContext& context, std::size_t offsets_input, i64 rows) {
  if (context.inputs.size() <= offsets_input) {
    return rows;
  }
  const ir::View& offsets = context.inputs[offsets_input];
  const i64 used = offsets.as<i32>()[offsets.elements() - 1];
  WYCH_DCHECK(used >= 0 && used <= rows, "{} used rows of {}", used, rows);
  return used;
}

template <class T>
void activate(const ir::ExecContext& context) {
  const i64 width = context.output(0).dim(1);
  const i64 rows = used_rows(context, 1, context.output(0).dim(0));
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
  const i64 rows = used_rows(context, 2, context.input(0).dim(0));
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

struct Example {
  i64 rows;
  i64 width;
  std::vector<double> offsets;  // empty: no such input

  [[nodiscard]] i64 used() const { return offsets.empty() ? rows : static_cast<i64>(offsets.back()); }
  [[nodiscard]] std::string label() const {
    return fmt::format("R={} f={} offsets=[{}]", rows, width, fmt::join(offsets, ","));
  }
  // Random where defined, NaN behind: the seedless sequence is the same for every dtype.
  [[nodiscard]] ir::CaseInput input(DType dtype, i64 columns, double phase) const {
    ir::CaseInput input{{dtype, {rows, columns}}};
    for (i64 i = 0; i < rows * columns; ++i) {
      input.values.push_back(i < used() * columns ? 3 * std::sin(static_cast<double>(i) + phase)
                                                  : std::numeric_limits<double>::quiet_NaN());
    }
    return input;
  }
  void finish(ir::OpCase& example, i64 output_columns) const {
    example.label = label();
    if (!offsets.empty()) {
      example.inputs.push_back({{DType::kI32, {static_cast<i64>(offsets.size())}}, offsets});
      example.defined = [defined = used() * output_columns](int, i64 element, const ir::Values&) {
        return element < defined;
      };
    }
  }
};

ir::OpCase swiglu_case(DType dtype, const Example& shape) {
  ir::OpCase example;
  example.op = std::make_shared<Swiglu>();
  example.inputs = {shape.input(dtype, 2 * shape.width, 0.3)};
  example.oracle = [f = static_cast<std::size_t>(shape.width)](const ir::Values& in) {
    ir::Values out(1);
    for (std::size_t i = 0; i < in[0].size() / 2; ++i) {
      const std::size_t gate = i / f * 2 * f + i % f;
      out[0].push_back(in[0][gate] / (1 + std::exp(-in[0][gate])) * in[0][gate + f]);
    }
    return out;
  };
  example.differentiable = {0};
  shape.finish(example, shape.width);
  return example;
}

ir::OpCase swiglu_dx_case(DType dtype, const Example& shape) {
  ir::OpCase example;
  example.op = std::make_shared<SwigluDx>();
  example.inputs = {shape.input(dtype, shape.width, 0.9), shape.input(dtype, 2 * shape.width, 0.3)};
  example.oracle = [f = static_cast<std::size_t>(shape.width)](const ir::Values& in) {
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
  shape.finish(example, 2 * shape.width);
  return example;
}

std::vector<Example> shapes() {
  return {{7, 5, {}},        {1, 1, {}},        {67, 131, {}},
          {7, 3, {0, 2, 5}}, {5, 3, {0, 0, 0}}, {48, 17, {0, 16, 16, 32}}};
}

template <ir::OpCase (*kCase)(DType, const Example&)>
std::vector<ir::OpCase> cases(DType dtype) {
  std::vector<ir::OpCase> result;
  for (const Example& shape : shapes()) {
    result.push_back(kCase(dtype, shape));
  }
  return result;
}

// The optional last input.
bool is_offsets(std::span<const ir::TensorType> inputs, std::size_t index) {
  return inputs.size() == index ||
         (inputs.size() == index + 1 && is_index(inputs[index], 1) && inputs[index].shape[0] > 0);
}

}  // namespace

Expected<std::vector<ir::TensorType>> Swiglu::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.empty() || !is_activation(inputs[0], 2) || inputs[0].shape[1] % 2 != 0 ||
      !is_offsets(inputs, 1)) {
    return ir::shape_error("needs gu A[R,2f] and perhaps offsets i32[E+1], A = f32, f64 or bf16", inputs);
  }
  return std::vector<ir::TensorType>{{inputs[0].dtype, {inputs[0].shape[0], inputs[0].shape[1] / 2}}};
}

std::vector<ir::ValueId> Swiglu::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                     std::span<const ir::ValueId> cotangents) const {
  std::vector<ir::ValueId> inputs = {cotangents[0]};
  inputs.insert(inputs.end(), node.inputs.begin(), node.inputs.end());
  std::vector<ir::ValueId> result(node.inputs.size(), ir::kNoValue);
  result[0] = builder.add_one(std::make_shared<SwigluDx>(), inputs);
  return result;
}

void Swiglu::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) { activate<T>(context); });
}

Expected<std::vector<ir::TensorType>> SwigluDx::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() < 2 || !is_activation(inputs[0], 2) ||
      !is_type(inputs[1], inputs[0].dtype, {inputs[0].shape[0], 2 * inputs[0].shape[1]}) ||
      !is_offsets(inputs, 2)) {
    return ir::shape_error("needs da A[R,f], gu A[R,2f] and perhaps offsets i32[E+1], A = f32, f64 or bf16",
                           inputs);
  }
  return std::vector<ir::TensorType>{inputs[1]};
}

std::vector<ir::Alias> SwigluDx::aliases() const { return {{1, 0, ir::AliasKind::kMay}}; }

void SwigluDx::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) { activate_dx<T>(context); });
}

ir::ValueId swiglu(ir::Builder& builder, ir::ValueId gu, ir::ValueId offsets) {
  if (offsets == ir::kNoValue) {
    return builder.add_one(std::make_shared<Swiglu>(), {gu});
  }
  return builder.add_one(std::make_shared<Swiglu>(), {gu, offsets});
}

void register_swiglu(ir::Registry& registry) {
  registry.add("swiglu", cases<swiglu_case>);
  registry.add("swiglu_dx", cases<swiglu_dx_case>);
}

}  // namespace wych::ops
