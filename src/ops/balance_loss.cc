// Sums over experts are in F, sums over tokens in float64 per chunk of tokens, then over chunks in order.
// The cases' oracle averages the probabilities first, as the header's formula does.
#include "ops/balance_loss.h"

#include "ir/builder.h"
#include "ops/row_chunks.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

constexpr i64 kTokensPerChunk = 512;

struct BalanceExample {
  const char* label;
  i64 groups, tokens_per_group, experts;
};
constexpr BalanceExample kExamples[] = {{"G=3 n=7 E=5", 3, 7, 5},
                                        {"G=1 n=1 E=1", 1, 1, 1},
                                        {"G=2 n=601 E=8", 2, 601, 8},
                                        {"G=1 n=13 E=67", 1, 13, 67}};
constexpr double kScale = 0.37;

std::vector<ir::OpCase> balance_loss_cases(DType dtype) {
  std::vector<ir::OpCase> cases;
  for (const BalanceExample& shape : kExamples) {
    const i64 tokens = shape.groups * shape.tokens_per_group;
    ir::OpCase example;
    example.label = shape.label;
    example.op = std::make_shared<BalanceLoss>(kScale);
    example.inputs = {{{dtype, {tokens, shape.experts}}, {}, 0, 1},
                      {{dtype, {shape.groups, shape.experts}}, {}, 0, 2}};
    example.oracle = [shape](const ir::Values& inputs) {
      double loss = 0;
      for (i64 group = 0; group < shape.groups; ++group) {
        for (i64 expert = 0; expert < shape.experts; ++expert) {
          double mean = 0;
          for (i64 n = 0; n < shape.tokens_per_group; ++n) {
            const i64 token = group * shape.tokens_per_group + n;
            mean += inputs[0][static_cast<std::size_t>(token * shape.experts + expert)] /
                    static_cast<double>(shape.tokens_per_group);
          }
          loss += kScale * mean * inputs[1][static_cast<std::size_t>(group * shape.experts + expert)];
        }
      }
      return ir::Values{{loss}};
    };
    example.differentiable = {0};
    example.reduction_length = shape.experts;  // the sum over tokens is in float64
    cases.push_back(std::move(example));
  }
  return cases;
}

std::vector<ir::OpCase> balance_loss_dprobs_cases(DType dtype) {
  std::vector<ir::OpCase> cases;
  for (const BalanceExample& shape : kExamples) {
    const i64 tokens = shape.groups * shape.tokens_per_group;
    ir::OpCase example;
    example.label = shape.label;
    example.op = std::make_shared<BalanceLossDprobs>(kScale, tokens);
    example.inputs = {{{DType::kF64, {1}}, {0.7}}, {{dtype, {shape.groups, shape.experts}}, {}, 0, 2}};
    example.oracle = [shape, tokens](const ir::Values& inputs) {
      std::vector<double> dprobs;
      for (i64 token = 0; token < tokens; ++token) {
        for (i64 expert = 0; expert < shape.experts; ++expert) {
          const i64 group = token / shape.tokens_per_group;
          dprobs.push_back(inputs[0][0] * kScale / static_cast<double>(shape.tokens_per_group) *
                           inputs[1][static_cast<std::size_t>(group * shape.experts + expert)]);
        }
      }
      return ir::Values{dprobs};
    };
    cases.push_back(std::move(example));
  }
  return cases;
}

}  // namespace

Expected<std::vector<ir::TensorType>> BalanceLoss::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 2 || !is_compute(inputs[0], 2) || inputs[1].dtype != inputs[0].dtype ||
      inputs[1].shape.rank() != 2 || inputs[1].shape[1] != inputs[0].shape[1] || inputs[1].shape[0] < 1 ||
      inputs[0].shape[0] < 1 || inputs[0].shape[0] % inputs[1].shape[0] != 0) {
    return ir::shape_error("needs probs F[T,E] and f F[G,E] with G dividing T", inputs);
  }
  return std::vector<ir::TensorType>{{DType::kF64, {1}}};
}

std::vector<ir::ValueId> BalanceLoss::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                          std::span<const ir::ValueId> cotangents) const {
  const i64 tokens = builder.type(node.inputs[0]).shape[0];
  return {
      builder.add_one(std::make_shared<BalanceLossDprobs>(scale_, tokens), {cotangents[0], node.inputs[1]}),
      ir::kNoValue};
}

i64 BalanceLoss::workspace(std::span<const ir::TensorType> inputs,
                           std::span<const ir::TensorType> /*outputs*/) const {
  return ceil_div(inputs[0].shape[0], kTokensPerChunk) * static_cast<i64>(sizeof(double));
}

i64 BalanceLoss::cuda_workspace(std::span<const ir::TensorType> inputs,
                                std::span<const ir::TensorType> /*outputs*/,
                                const CudaTarget& /*target*/) const {
  return ceil_div(inputs[0].shape[0], kCudaTokensPerChunk) * static_cast<i64>(sizeof(double));
}

void BalanceLoss::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) {
    const T* probs = context.input(0).as<T>();
    const T* f = context.input(1).as<T>();
    double* partial = reinterpret_cast<double*>(context.workspace);  // one per chunk
    const i64 tokens = context.input(0).dim(0);
    const i64 experts = context.input(0).dim(1);
    const i64 tokens_per_group = tokens / context.input(1).dim(0);
    context.pool->parallel_chunks(tokens, kTokensPerChunk, [&](i64 begin, i64 end) {
      double sum = 0;
      for (i64 token = begin; token < end; ++token) {
        sum += static_cast<double>(
            dot(probs + token * experts, f + token / tokens_per_group * experts, experts));
      }
      partial[begin / kTokensPerChunk] = sum;
    });
    double sum = 0;
    for (i64 chunk = 0; chunk < ceil_div(tokens, kTokensPerChunk); ++chunk) {
      sum += partial[chunk];
    }
    *context.output(0).as<double>() = scale_ * sum / static_cast<double>(tokens_per_group);
  });
}

void BalanceLossDprobs::visit_attributes(ir::AttributeVisitor& visitor) const {
  visitor.visit("scale", scale_);
  visitor.visit("tokens", tokens_);
}

Expected<std::vector<ir::TensorType>> BalanceLossDprobs::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 2 || !is_scalar(inputs[0]) || !is_compute(inputs[1], 2) || inputs[1].shape[0] < 1 ||
      tokens_ < 1 || tokens_ % inputs[1].shape[0] != 0) {
    return ir::shape_error(fmt::format("needs dloss f64[1] and f F[G,E] with G dividing {}", tokens_),
                           inputs);
  }
  return std::vector<ir::TensorType>{{inputs[1].dtype, {tokens_, inputs[1].shape[1]}}};
}

void BalanceLossDprobs::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(1).type->dtype, [&]<class T>(T) {
    const T* f = context.input(1).as<T>();
    T* dprobs = context.output(0).as<T>();
    const i64 experts = context.input(1).dim(1);
    const i64 tokens_per_group = tokens_ / context.input(1).dim(0);
    const auto factor =
        static_cast<T>(*context.input(0).as<double>() * scale_ / static_cast<double>(tokens_per_group));
    context.pool->parallel_chunks(tokens_, rows_per_chunk(experts), [&](i64 begin, i64 end) {
      for (i64 token = begin; token < end; ++token) {
        const T* __restrict__ from = f + token / tokens_per_group * experts;
        T* __restrict__ to = dprobs + token * experts;
        for (i64 expert = 0; expert < experts; ++expert) {
          to[expert] = factor * from[expert];
        }
      }
    });
  });
}

ir::ValueId balance_loss(ir::Builder& builder, ir::ValueId probs, ir::ValueId fractions, double scale) {
  return builder.add_one(std::make_shared<BalanceLoss>(scale), {probs, fractions});
}

void register_balance_loss(ir::Registry& registry) {
  registry.add("balance_loss", balance_loss_cases);
  registry.add("balance_loss_dprobs", balance_loss_dprobs_cases);
}

}  // namespace wych::ops
