// Rows are a handful of weights: plain loops. The cases' oracle differentiates w_j / s by the quotient rule.
// A row that sums to zero has its own case.
#include "ops/normalize_weights.h"

#include "ir/builder.h"
#include "ops/row_chunks.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

template <class T>
T row_sum(const T* w, i64 k) {
  T sum = 0;
  for (i64 j = 0; j < k; ++j) {
    sum += w[j];
  }
  return sum;
}

ir::Values normalize_oracle(const ir::Values& inputs, i64 k) {
  std::vector<double> y = inputs[0];
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double* row = inputs[0].data() + i / static_cast<std::size_t>(k) * static_cast<std::size_t>(k);
    const double sum = row_sum(row, k);
    y[i] = sum == 0 ? 0 : y[i] / sum;
  }
  return {y};
}

// With s = sum w: d(w_j / s) / dw_i = (i == j) / s - w_j / s^2.
ir::Values normalize_dx_oracle(const ir::Values& inputs, i64 k) {
  const auto n = static_cast<std::size_t>(k);
  std::vector<double> dw(inputs[1].size());
  for (std::size_t row = 0; row < dw.size(); row += n) {
    const double sum = row_sum(inputs[1].data() + row, k);
    for (std::size_t i = row; i < row + n && sum != 0; ++i) {
      for (std::size_t j = row; j < row + n; ++j) {
        dw[i] += inputs[0][j] * ((i == j ? 1 / sum : 0.0) - inputs[1][j] / (sum * sum));
      }
    }
  }
  return {dw};
}

struct NormalizeExample {
  const char* label;
  i64 tokens, k;
};
constexpr NormalizeExample kExamples[] = {
    {"T=7 k=3", 7, 3}, {"T=1 k=1", 1, 1}, {"T=2053 k=8", 2053, 8}, {"T=0 k=2", 0, 2}};

template <class Op>
std::vector<ir::OpCase> cases_of(DType dtype) {
  constexpr bool kBackward = std::is_same_v<Op, NormalizeWeightsDx>;
  std::vector<ir::OpCase> cases;
  for (const NormalizeExample& shape : kExamples) {
    const ir::TensorType type = {dtype, {shape.tokens, shape.k}};
    ir::OpCase example;
    example.label = shape.label;
    example.op = std::make_shared<Op>();
    example.inputs = {{type, {}, 0.1, 1}};
    if (kBackward) {
      example.inputs.insert(example.inputs.begin(), {type, {}});
    } else {
      example.differentiable = {0};
    }
    example.oracle = [k = shape.k](const ir::Values& inputs) {
      return kBackward ? normalize_dx_oracle(inputs, k) : normalize_oracle(inputs, k);
    };
    example.reduction_length = shape.k;
    cases.push_back(std::move(example));
  }
  ir::OpCase zero = cases[0];
  zero.label = "a row whose sum is zero";
  zero.differentiable = {};
  zero.inputs.back() = {{dtype, {2, 3}}, {0, 0, 0, 0.25, 0, 0.75}};
  zero.inputs.front().type = {dtype, {2, 3}};
  zero.oracle = [](const ir::Values& inputs) {
    return kBackward ? normalize_dx_oracle(inputs, 3) : normalize_oracle(inputs, 3);
  };
  cases.push_back(std::move(zero));
  return cases;
}

}  // namespace

Expected<std::vector<ir::TensorType>> NormalizeWeights::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 1 || !is_compute(inputs[0], 2)) {
    return ir::shape_error("needs weights F[T,k]", inputs);
  }
  return std::vector<ir::TensorType>{inputs[0]};
}

std::vector<ir::ValueId> NormalizeWeights::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                               std::span<const ir::ValueId> cotangents) const {
  return {builder.add_one(std::make_shared<NormalizeWeightsDx>(), {cotangents[0], node.inputs[0]})};
}

std::vector<ir::Alias> NormalizeWeights::aliases() const { return {{0, 0, ir::AliasKind::kMay}}; }

void NormalizeWeights::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) {
    const i64 k = context.input(0).dim(1);
    context.pool->parallel_chunks(context.input(0).dim(0), rows_per_chunk(k), [&](i64 begin, i64 end) {
      for (i64 token = begin; token < end; ++token) {
        const T* w = context.input(0).as<T>() + token * k;
        T* y = context.output(0).as<T>() + token * k;
        const T sum = row_sum(w, k);
        for (i64 j = 0; j < k; ++j) {
          y[j] = sum == 0 ? T{0} : w[j] / sum;
        }
      }
    });
  });
}

Expected<std::vector<ir::TensorType>> NormalizeWeightsDx::infer(
    std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 2 || !is_compute(inputs[0], 2) || inputs[0] != inputs[1]) {
    return ir::shape_error("needs dy and weights of one type F[T,k]", inputs);
  }
  return std::vector<ir::TensorType>{inputs[0]};
}

std::vector<ir::Alias> NormalizeWeightsDx::aliases() const {
  return {{0, 0, ir::AliasKind::kMay}, {1, 0, ir::AliasKind::kMay}};
}

void NormalizeWeightsDx::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) {
    const i64 k = context.input(0).dim(1);
    context.pool->parallel_chunks(context.input(0).dim(0), rows_per_chunk(2 * k), [&](i64 begin, i64 end) {
      for (i64 token = begin; token < end; ++token) {
        const T* dy = context.input(0).as<T>() + token * k;
        const T* w = context.input(1).as<T>() + token * k;
        T* dw = context.output(0).as<T>() + token * k;
        const T sum = row_sum(w, k);
        const T mean = dot(dy, w, k) / sum;  // sum_i dy_i y_i
        for (i64 j = 0; j < k; ++j) {
          dw[j] = sum == 0 ? T{0} : (dy[j] - mean) / sum;
        }
      }
    });
  });
}

ir::ValueId normalize_weights(ir::Builder& builder, ir::ValueId weights) {
  return builder.add_one(std::make_shared<NormalizeWeights>(), {weights});
}

void register_normalize_weights(ir::Registry& registry) {
  registry.add("normalize_weights", cases_of<NormalizeWeights>);
  registry.add("normalize_weights_dx", cases_of<NormalizeWeightsDx>);
}

}  // namespace wych::ops
