#include "ops/linear.h"

#include "kernels/gemm.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

std::vector<double> product(i64 m, i64 n, i64 k, const std::function<double(i64, i64)>& a,
                            const std::function<double(i64, i64)>& b) {
  std::vector<double> c;
  for (i64 i = 0; i < m; ++i) {
    for (i64 j = 0; j < n; ++j) {
      double sum = 0;
      for (i64 p = 0; p < k; ++p) {
        sum += a(i, p) * b(p, j);
      }
      c.push_back(sum);
    }
  }
  return c;
}

// The element [row, column] of a matrix of `width` columns.
auto matrix(const std::vector<double>& values, i64 width) {
  return [&values, width](i64 row, i64 column) {
    return values[static_cast<std::size_t>(row * width + column)];
  };
}
auto transposed(const std::vector<double>& values, i64 width) {
  return [&values, width](i64 row, i64 column) {
    return values[static_cast<std::size_t>(column * width + row)];
  };
}

std::string label_of(i64 rows, i64 n, i64 k) { return fmt::format("R={} n={} k={}", rows, n, k); }

ir::OpCase linear_case(DType dtype, i64 rows, i64 n, i64 k) {
  ir::OpCase example;
  example.label = label_of(rows, n, k);
  example.op = std::make_shared<Linear>();
  example.inputs = {{{dtype, {rows, k}}}, {{dtype, {n, k}}}};
  example.oracle = [=](const ir::Values& in) {
    return ir::Values{product(rows, n, k, matrix(in[0], k), transposed(in[1], k))};
  };
  example.differentiable = {0, 1};
  example.reduction_length = k;
  return example;
}

ir::OpCase linear_dx_case(DType dtype, i64 rows, i64 n, i64 k) {
  ir::OpCase example;
  example.label = label_of(rows, n, k);
  example.op = std::make_shared<LinearDx>();
  example.inputs = {{{dtype, {rows, n}}}, {{dtype, {n, k}}}};
  example.oracle = [=](const ir::Values& in) {
    return ir::Values{product(rows, k, n, matrix(in[0], n), matrix(in[1], k))};
  };
  example.reduction_length = n;
  return example;
}

ir::OpCase linear_dw_case(DType dtype, i64 rows, i64 n, i64 k) {
  ir::OpCase example;
  example.label = label_of(rows, n, k);
  example.op = std::make_shared<LinearDw>();
  example.inputs = {{{dtype, {rows, n}}}, {{dtype, {rows, k}}}};
  example.oracle = [=](const ir::Values& in) {
    return ir::Values{product(n, k, rows, transposed(in[0], n), matrix(in[1], k))};
  };
  example.reduction_length = rows;
  return example;
}

template <ir::OpCase (*kCase)(DType, i64, i64, i64)>
std::vector<ir::OpCase> cases(DType dtype) {
  return {kCase(dtype, 7, 5, 3), kCase(dtype, 1, 1, 1), kCase(dtype, 37, 67, 131), kCase(dtype, 32, 64, 16),
          kCase(dtype, 2, 1, 257)};
}

ir::Cost gemm_cost(const ir::Op& op, std::span<const ir::TensorType> inputs,
                   std::span<const ir::TensorType> outputs, double multiply_adds) {
  ir::Cost cost = op.ir::Op::cost(inputs, outputs);
  cost.flops = 2 * multiply_adds;
  return cost;
}

}  // namespace

Expected<std::vector<ir::TensorType>> Linear::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 2 || !is_activation(inputs[0], 2) || !is_activation(inputs[1], 2) ||
      inputs[0].dtype != inputs[1].dtype || inputs[0].shape[1] != inputs[1].shape[1]) {
    return ir::shape_error("needs x A[R,k] and weight A[n,k], A = f32, f64 or bf16", inputs);
  }
  return std::vector<ir::TensorType>{{inputs[0].dtype, {inputs[0].shape[0], inputs[1].shape[0]}}};
}

std::vector<ir::ValueId> Linear::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                     std::span<const ir::ValueId> cotangents) const {
  return {builder.add_one(std::make_shared<LinearDx>(), {cotangents[0], node.inputs[1]}),
          builder.add_one(std::make_shared<LinearDw>(), {cotangents[0], node.inputs[0]})};
}

ir::Cost Linear::cost(std::span<const ir::TensorType> inputs, std::span<const ir::TensorType> outputs) const {
  return gemm_cost(*this, inputs, outputs,
                   static_cast<double>(outputs[0].elements()) * static_cast<double>(inputs[0].shape[1]));
}

void Linear::run_cpu(const ir::ExecContext& context) const {
  const i64 rows = context.input(0).dim(0);
  const i64 k = context.input(0).dim(1);
  const i64 n = context.input(1).dim(0);
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) {
    kernels::gemm(*context.pool, false, true, rows, n, k, context.input(0).as<T>(), k,
                  context.input(1).as<T>(), k, false, context.output(0).as<T>(), n);
  });
}

Expected<std::vector<ir::TensorType>> LinearDx::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 2 || !is_activation(inputs[0], 2) || !is_activation(inputs[1], 2) ||
      inputs[0].dtype != inputs[1].dtype || inputs[0].shape[1] != inputs[1].shape[0]) {
    return ir::shape_error("needs dy A[R,n] and weight A[n,k], A = f32, f64 or bf16", inputs);
  }
  return std::vector<ir::TensorType>{{inputs[0].dtype, {inputs[0].shape[0], inputs[1].shape[1]}}};
}

ir::Cost LinearDx::cost(std::span<const ir::TensorType> inputs,
                        std::span<const ir::TensorType> outputs) const {
  return gemm_cost(*this, inputs, outputs,
                   static_cast<double>(outputs[0].elements()) * static_cast<double>(inputs[0].shape[1]));
}

void LinearDx::run_cpu(const ir::ExecContext& context) const {
  const i64 rows = context.input(0).dim(0);
  const i64 n = context.input(0).dim(1);
  const i64 k = context.input(1).dim(1);
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) {
    kernels::gemm(*context.pool, false, false, rows, k, n, context.input(0).as<T>(), n,
                  context.input(1).as<T>(), k, false, context.output(0).as<T>(), k);
  });
}

Expected<std::vector<ir::TensorType>> LinearDw::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 2 || !is_activation(inputs[0], 2) || !is_activation(inputs[1], 2) ||
      inputs[0].dtype != inputs[1].dtype || inputs[0].shape[0] != inputs[1].shape[0]) {
    return ir::shape_error("needs dy A[R,n] and x A[R,k], A = f32, f64 or bf16", inputs);
  }
  return std::vector<ir::TensorType>{
      {stats_dtype(inputs[0].dtype), {inputs[0].shape[1], inputs[1].shape[1]}}};
}

ir::Cost LinearDw::cost(std::span<const ir::TensorType> inputs,
                        std::span<const ir::TensorType> outputs) const {
  return gemm_cost(*this, inputs, outputs,
                   static_cast<double>(outputs[0].elements()) * static_cast<double>(inputs[0].shape[0]));
}

void LinearDw::run_cpu(const ir::ExecContext& context) const {
  const i64 rows = context.input(0).dim(0);
  const i64 n = context.input(0).dim(1);
  const i64 k = context.input(1).dim(1);
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) {
    kernels::gemm(*context.pool, true, false, n, k, rows, context.input(0).as<T>(), n,
                  context.input(1).as<T>(), k, context.accumulate, context.output(0).as<T>(), k);
  });
}

namespace {

i64 matmul_workspace(std::span<const ir::TensorType> inputs) {
  return inputs[0].dtype == DType::kBF16 ? kMatmulWorkspaceBytes : 0;
}

}  // namespace

i64 Linear::cuda_workspace(std::span<const ir::TensorType> inputs,
                           std::span<const ir::TensorType> /*outputs*/, const CudaTarget& /*target*/) const {
  return matmul_workspace(inputs);
}

i64 LinearDx::cuda_workspace(std::span<const ir::TensorType> inputs,
                             std::span<const ir::TensorType> /*outputs*/,
                             const CudaTarget& /*target*/) const {
  return matmul_workspace(inputs);
}

i64 LinearDw::cuda_workspace(std::span<const ir::TensorType> inputs,
                             std::span<const ir::TensorType> /*outputs*/,
                             const CudaTarget& /*target*/) const {
  return matmul_workspace(inputs);
}

ir::ValueId linear(ir::Builder& builder, ir::ValueId x, ir::ValueId weight) {
  return builder.add_one(std::make_shared<Linear>(), {x, weight});
}

void register_linear(ir::Registry& registry) {
  registry.add("linear", cases<linear_case>);
  registry.add("linear_dx", cases<linear_dx_case>);
  registry.add("linear_dw", cases<linear_dw_case>);
}

}  // namespace wych::ops
