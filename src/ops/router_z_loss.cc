// The log-sum-exp of a token is in F, sums over tokens are in float64 per chunk of tokens, then over chunks
// in order. The gradient computes it again: cheaper than keeping it.
#include "ops/router_z_loss.h"

#include <algorithm>
#include <cmath>

#include "ir/builder.h"
#include "kernels/vector_math.h"
#include "ops/row_chunks.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

constexpr i64 kTokensPerChunk = 512;

template <class T>
T largest_of(const T* x, i64 n) {
  T largest = x[0];
  for (i64 e = 1; e < n; ++e) {
    largest = std::max(largest, x[e]);
  }
  return largest;
}

template <class T>
T log_sum_exp(const T* x, i64 n) {
  const T largest = largest_of(x, n);
  T sum = 0;
  for (i64 e = 0; e < n; ++e) {
    sum += kernels::exp(x[e] - largest);
  }
  return largest + std::log(sum);
}

struct RouterZExample {
  const char* label;
  i64 tokens, experts;
};
constexpr RouterZExample kExamples[] = {
    {"T=7 E=5", 7, 5}, {"T=1 E=1", 1, 1}, {"T=1301 E=8", 1301, 8}, {"T=3 E=131", 3, 131}};

double plain_lse(const double* x, i64 n) {
  double sum = 0;
  for (i64 e = 0; e < n; ++e) {
    sum += std::exp(x[e]);
  }
  return std::log(sum);
}

std::vector<ir::OpCase> router_z_loss_cases(DType dtype) {
  std::vector<ir::OpCase> cases;
  for (const RouterZExample& shape : kExamples) {
    ir::OpCase example;
    example.label = shape.label;
    example.op = std::make_shared<RouterZLoss>();
    example.inputs = {{{dtype, {shape.tokens, shape.experts}}, {}, -3, 4}, {{DType::kF64, {1}}, {1234}}};
    example.oracle = [shape](const ir::Values& inputs) {
      double sum = 0;
      for (i64 token = 0; token < shape.tokens; ++token) {
        const double lse = plain_lse(inputs[0].data() + token * shape.experts, shape.experts);
        sum += lse * lse / inputs[1][0];
      }
      return ir::Values{{sum}};
    };
    example.differentiable = {0};
    example.reduction_length = shape.experts;  // the sum over tokens is in float64
    example.tolerance_scale = 8;
    cases.push_back(std::move(example));
  }
  ir::OpCase large;
  large.label = "logits far beyond the range of exp";
  large.op = std::make_shared<RouterZLoss>();
  large.inputs = {{{dtype, {2, 2}}, {500, 0, -500, -9000}}, {{DType::kF64, {1}}, {10}}};
  large.oracle = [](const ir::Values&) { return ir::Values{{50000}}; };
  cases.push_back(std::move(large));
  return cases;
}

std::vector<ir::OpCase> router_z_loss_dlogits_cases(DType dtype) {
  std::vector<ir::OpCase> cases;
  for (const RouterZExample& shape : kExamples) {
    ir::OpCase example;
    example.label = shape.label;
    example.op = std::make_shared<RouterZLossDlogits>();
    example.inputs = {{{DType::kF64, {1}}, {0.6}},
                      {{dtype, {shape.tokens, shape.experts}}, {}, -3, 4},
                      {{DType::kF64, {1}}, {1234}}};
    example.oracle = [shape](const ir::Values& inputs) {
      std::vector<double> dlogits;
      for (std::size_t i = 0; i < inputs[1].size(); ++i) {
        const i64 token = static_cast<i64>(i) / shape.experts;
        const double lse = plain_lse(inputs[1].data() + token * shape.experts, shape.experts);
        dlogits.push_back(inputs[0][0] * 2 * lse * std::exp(inputs[1][i] - lse) / inputs[2][0]);
      }
      return ir::Values{dlogits};
    };
    example.reduction_length = shape.experts;
    example.tolerance_scale = 8;
    cases.push_back(std::move(example));
  }
  return cases;
}

}  // namespace

Expected<std::vector<ir::TensorType>> RouterZLoss::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 2 || !is_compute(inputs[0], 2) || inputs[0].shape[1] < 1 || !is_scalar(inputs[1])) {
    return ir::shape_error("needs logits F[T,E] with E >= 1 and denominator f64[1]", inputs);
  }
  return std::vector<ir::TensorType>{{DType::kF64, {1}}};
}

std::vector<ir::ValueId> RouterZLoss::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                          std::span<const ir::ValueId> cotangents) const {
  return {builder.add_one(std::make_shared<RouterZLossDlogits>(),
                          {cotangents[0], node.inputs[0], node.inputs[1]}),
          ir::kNoValue};
}

i64 RouterZLoss::workspace(std::span<const ir::TensorType> inputs,
                           std::span<const ir::TensorType> /*outputs*/) const {
  return ceil_div(inputs[0].shape[0], kTokensPerChunk) * static_cast<i64>(sizeof(double));
}

i64 RouterZLoss::cuda_workspace(std::span<const ir::TensorType> inputs,
                                std::span<const ir::TensorType> /*outputs*/,
                                const CudaTarget& /*target*/) const {
  return ceil_div(inputs[0].shape[0], kCudaTokensPerChunk) * static_cast<i64>(sizeof(double));
}

void RouterZLoss::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) {
    const T* logits = context.input(0).as<T>();
    double* partial = reinterpret_cast<double*>(context.workspace);  // one per chunk
    const i64 tokens = context.input(0).dim(0);
    const i64 experts = context.input(0).dim(1);
    context.pool->parallel_chunks(tokens, kTokensPerChunk, [&](i64 begin, i64 end) {
      double sum = 0;
      for (i64 token = begin; token < end; ++token) {
        const T lse = log_sum_exp(logits + token * experts, experts);
        sum += static_cast<double>(lse * lse);
      }
      partial[begin / kTokensPerChunk] = sum;
    });
    double sum = 0;
    for (i64 chunk = 0; chunk < ceil_div(tokens, kTokensPerChunk); ++chunk) {
      sum += partial[chunk];
    }
    *context.output(0).as<double>() = sum / *context.input(1).as<double>();
  });
}

Expected<std::vector<ir::TensorType>> RouterZLossDlogits::infer(
    std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 3 || !is_scalar(inputs[0]) || !is_compute(inputs[1], 2) || inputs[1].shape[1] < 1 ||
      !is_scalar(inputs[2])) {
    return ir::shape_error("needs dloss f64[1], logits F[T,E] with E >= 1 and denominator f64[1]", inputs);
  }
  return std::vector<ir::TensorType>{inputs[1]};
}

void RouterZLossDlogits::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(1).type->dtype, [&]<class T>(T) {
    const i64 experts = context.input(1).dim(1);
    const auto factor = static_cast<T>(2 * *context.input(0).as<double>() / *context.input(2).as<double>());
    context.pool->parallel_chunks(context.input(1).dim(0), rows_per_chunk(4 * experts),
                                  [&](i64 begin, i64 end) {
                                    for (i64 token = begin; token < end; ++token) {
                                      const T* x = context.input(1).as<T>() + token * experts;
                                      T* dx = context.output(0).as<T>() + token * experts;
                                      const T lse = log_sum_exp(x, experts);
                                      for (i64 e = 0; e < experts; ++e) {
                                        dx[e] = factor * lse * kernels::exp(x[e] - lse);
                                      }
                                    }
                                  });
  });
}

ir::ValueId router_z_loss(ir::Builder& builder, ir::ValueId logits, ir::ValueId denominator) {
  return builder.add_one(std::make_shared<RouterZLoss>(), {logits, denominator});
}

void register_router_z_loss(ir::Registry& registry) {
  registry.add("router_z_loss", router_z_loss_cases);
  registry.add("router_z_loss_dlogits", router_z_loss_dlogits_cases);
}

}  // namespace wych::ops
