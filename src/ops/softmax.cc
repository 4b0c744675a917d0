// Rows are independent and stay in the first-level cache for their sweeps: maximum, exponentials, sum, scale.
// The cases' oracle sums plain exponentials and, for the gradient, the whole Jacobian.
#include "ops/softmax.h"

#include <cmath>

#include "ir/builder.h"
#include "kernels/vector_math.h"
#include "ops/row_chunks.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

template <class T>
void softmax_row(const T* x, T* y, i64 n) {
  T largest = x[0];
  for (i64 e = 1; e < n; ++e) {
    largest = std::max(largest, x[e]);
  }
  for (i64 e = 0; e < n; ++e) {
    y[e] = kernels::exp(x[e] - largest);
  }
  T sum = 0;
  for (i64 e = 0; e < n; ++e) {
    sum += y[e];
  }
  for (i64 e = 0; e < n; ++e) {
    y[e] /= sum;
  }
}

ir::Values softmax_oracle(const ir::Values& inputs, i64 columns) {
  std::vector<double> y(inputs[0].size());
  const auto n = static_cast<std::size_t>(columns);
  for (std::size_t row = 0; row < y.size(); row += n) {
    double sum = 0;
    for (std::size_t e = row; e < row + n; ++e) {
      y[e] = std::exp(inputs[0][e]);
      sum += y[e];
    }
    for (std::size_t e = row; e < row + n; ++e) {
      y[e] /= sum;
    }
  }
  return {y};
}

// dx_i = sum_j (the Jacobian's entry) dy_j, for any y.
ir::Values softmax_dx_oracle(const ir::Values& inputs, i64 columns) {
  std::vector<double> dx(inputs[0].size());
  const auto n = static_cast<std::size_t>(columns);
  for (std::size_t row = 0; row < dx.size(); row += n) {
    for (std::size_t i = row; i < row + n; ++i) {
      for (std::size_t j = row; j < row + n; ++j) {
        dx[i] += inputs[1][i] * ((i == j ? 1.0 : 0.0) - inputs[1][j]) * inputs[0][j];
      }
    }
  }
  return {dx};
}

struct MatrixExample {
  const char* label;
  ir::Shape shape;
};
const MatrixExample kMatrices[] = {
    {"T=7 E=5", {7, 5}},       {"T=1 E=1", {1, 1}},     {"T=0 E=3", {0, 3}},
    {"T=2053 E=8", {2053, 8}}, {"T=3 E=257", {3, 257}},
};

std::vector<ir::OpCase> softmax_cases(DType dtype) {
  std::vector<ir::OpCase> cases;
  for (const MatrixExample& matrix : kMatrices) {
    ir::OpCase example;
    example.label = matrix.label;
    example.op = std::make_shared<Softmax>();
    example.inputs = {{{dtype, matrix.shape}, {}, -4, 4}};
    example.oracle = [n = matrix.shape[1]](const ir::Values& inputs) { return softmax_oracle(inputs, n); };
    example.differentiable = {0};
    example.reduction_length = matrix.shape[1];
    example.tolerance_scale = 8;  // exp, sum and division
    cases.push_back(std::move(example));
  }
  ir::OpCase large;
  large.label = "logits far beyond the range of exp";
  large.op = std::make_shared<Softmax>();
  large.inputs = {{{dtype, {2, 3}}, {2000, 2000, -2000, -900, -3000, -900}}};
  large.oracle = [](const ir::Values&) { return ir::Values{{0.5, 0.5, 0, 0.5, 0, 0.5}}; };
  cases.push_back(std::move(large));
  return cases;
}

std::vector<ir::OpCase> softmax_dx_cases(DType dtype) {
  std::vector<ir::OpCase> cases;
  for (const MatrixExample& matrix : kMatrices) {
    ir::OpCase example;
    example.label = matrix.label;
    example.op = std::make_shared<SoftmaxDx>();
    example.inputs = {{{dtype, matrix.shape}, {}}, {{dtype, matrix.shape}, {}, 0, 1}};
    example.oracle = [n = matrix.shape[1]](const ir::Values& inputs) { return softmax_dx_oracle(inputs, n); };
    example.reduction_length = matrix.shape[1];
    cases.push_back(std::move(example));
  }
  return cases;
}

}  // namespace

Expected<std::vector<ir::TensorType>> Softmax::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 1 || !is_compute(inputs[0], 2) || inputs[0].shape[1] == 0) {
    return ir::shape_error("needs logits F[T,E] with E >= 1", inputs);
  }
  return std::vector<ir::TensorType>{inputs[0]};
}

std::vector<ir::ValueId> Softmax::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                      std::span<const ir::ValueId> cotangents) const {
  return {builder.add_one(std::make_shared<SoftmaxDx>(), {cotangents[0], node.outputs[0]})};
}

std::vector<ir::Alias> Softmax::aliases() const { return {{0, 0, ir::AliasKind::kMay}}; }

void Softmax::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) {
    const T* x = context.input(0).as<T>();
    T* y = context.output(0).as<T>();
    const i64 n = context.input(0).dim(1);
    context.pool->parallel_chunks(context.input(0).dim(0), rows_per_chunk(4 * n), [&](i64 begin, i64 end) {
      for (i64 row = begin; row < end; ++row) {
        softmax_row(x + row * n, y + row * n, n);
      }
    });
  });
}

Expected<std::vector<ir::TensorType>> SoftmaxDx::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 2 || !is_compute(inputs[0], 2) || inputs[0] != inputs[1]) {
    return ir::shape_error("needs dy and y of one type F[T,E]", inputs);
  }
  return std::vector<ir::TensorType>{inputs[0]};
}

std::vector<ir::Alias> SoftmaxDx::aliases() const {
  return {{0, 0, ir::AliasKind::kMay}, {1, 0, ir::AliasKind::kMay}};
}

void SoftmaxDx::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) {
    const i64 n = context.input(0).dim(1);
    context.pool->parallel_chunks(context.input(0).dim(0), rows_per_chunk(2 * n), [&](i64 begin, i64 end) {
      for (i64 row = begin; row < end; ++row) {
        const T* dy = context.input(0).as<T>() + row * n;
        const T* y = context.input(1).as<T>() + row * n;
        T* dx = context.output(0).as<T>() + row * n;
        const T mean = dot(dy, y, n);
        for (i64 e = 0; e < n; ++e) {
          dx[e] = y[e] * (dy[e] - mean);
        }
      }
    });
  });
}

ir::ValueId softmax(ir::Builder& builder, ir::ValueId logits) {
  return builder.add_one(std::make_shared<Softmax>(), {logits});
}

void register_softmax(ir::Registry& registry) {
  registry.add("softmax", softmax_cases);
  registry.add("softmax_dx", softmax_dx_cases);
}

}  // namespace wych::ops
