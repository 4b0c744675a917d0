#include "ops/head_loss.h"

#include <algorithm>
#include <cmath>

#include "kernels/gemm.h"
#include "kernels/lane_sum.h"
#include "kernels/vector_math.h"
#include "ops/count_targets.h"
#include "ops/fill.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

// Rows whose logits exist at once: 2^18 logits stay in a second-level cache, but fewer than 128 rows would
// not pay for reading and writing dweight.
i64 rows_of_chunk(i64 tokens, i64 vocabulary) {
  return std::min(tokens, std::max<i64>(128, (i64{1} << 18) / vocabulary));
}

// One chunk of logits F[rows, vocabulary], then two losses f64[tokens] each.
struct Workspace {
  i64 logits;
  i64 losses;
};
Workspace workspace_of(const ir::TensorType& x, i64 vocabulary) {
  return {round_up(rows_of_chunk(x.shape[0], vocabulary) * vocabulary * dtype_bytes(x.dtype), 64),
          2 * x.shape[0] * dtype_bytes(DType::kF64)};
}

// The inputs of both ops, and what a row of logits turns into.
template <class T>
struct Head {
  explicit Head(const ir::ExecContext& context, i64 num_words)
      : pool(*context.pool),
        tokens(context.input(0).dim(0)),
        width(context.input(0).dim(1)),
        vocabulary(num_words),
        x(context.input(0).as<T>()),
        weight(context.input(1).as<T>()),
        targets(context.input(2).as<i32>()),
        denominator(context.input(3).as<double>()[0]),
        logits(reinterpret_cast<T*>(context.workspace)),
        losses(reinterpret_cast<double*>(context.workspace +
                                         workspace_of(*context.input(0).type, vocabulary).logits)) {}

  ThreadPool& pool;
  i64 tokens;
  i64 width;
  i64 vocabulary;
  const T* x;
  const T* weight;
  const i32* targets;
  double denominator;
  T* logits;       // [chunk, vocabulary]
  double* losses;  // [tokens, ce and z]

  void multiply_logits(i64 begin, i64 end) const {
    kernels::gemm(pool, false, true, end - begin, vocabulary, width, x + begin * width, width, weight, width,
                  false, logits, vocabulary);
  }

  // Log of the sum of the exponentials of a row, which is left holding exp(logit - largest); `inverse` is one
  // over their sum.
  T exponentials(T* row, T& inverse) const {
    const T largest = kernels::lane_max(row, vocabulary);
    for (i64 v = 0; v < vocabulary; ++v) {
      row[v] = kernels::exp(row[v] - largest);
    }
    const T sum = kernels::lane_sum<T>(vocabulary, [=](i64 v) { return row[v]; });
    inverse = T{1} / sum;
    return largest + std::log(sum);
  }

  // Sums in the order of tokens.
  void write_sums(const ir::ExecContext& context) const {
    double ce = 0;
    double z = 0;
    for (i64 t = 0; t < tokens; ++t) {
      ce += losses[2 * t];
      z += losses[2 * t + 1];
    }
    context.output(0).as<double>()[0] = ce / denominator;
    context.output(1).as<double>()[0] = z / denominator;
  }
};

// Calls chunk(begin, end) over the tokens with the logits of the chunk, then row(t, logits of t) in parallel
// and after(begin, end).
template <class T, class Row, class After>
void for_each_chunk(const Head<T>& head, const Row& row, const After& after) {
  constexpr i64 kRowsPerTask = 8;
  const i64 size = rows_of_chunk(head.tokens, head.vocabulary);
  for (i64 begin = 0; begin < head.tokens; begin += size) {
    const i64 end = std::min(begin + size, head.tokens);
    head.multiply_logits(begin, end);
    head.pool.parallel_chunks(end - begin, kRowsPerTask, [&](i64 first, i64 last) {
      for (i64 r = first; r < last; ++r) {
        row(begin + r, head.logits + r * head.vocabulary);
      }
    });
    after(begin, end);
  }
}

// The losses of a row, whose logits become exp(logit - largest).
template <class T>
struct RowLoss {
  bool counts;  // false: ignored, and the logits are as they were
  T lse;
  T inverse;
};
template <class T>
RowLoss<T> lose(const Head<T>& head, i64 t, T* row) {
  const i32 target = head.targets[t];
  head.losses[2 * t] = 0;
  head.losses[2 * t + 1] = 0;
  if (target == kIgnoredTarget) {
    return {false, T{0}, T{0}};
  }
  WYCH_DCHECK(target >= 0 && target < head.vocabulary, "target {} of {}", target, head.vocabulary);
  const T logit = row[target];
  RowLoss<T> loss{true, T{0}, T{0}};
  loss.lse = head.exponentials(row, loss.inverse);
  head.losses[2 * t] = static_cast<double>(loss.lse - logit);
  head.losses[2 * t + 1] = static_cast<double>(loss.lse) * static_cast<double>(loss.lse);
  return loss;
}

template <class T>
void run_loss(const ir::ExecContext& context, i64 vocabulary) {
  const Head<T> head(context, vocabulary);
  for_each_chunk(
      head, [&](i64 t, T* row) { lose(head, t, row); }, [](i64, i64) {});
  head.write_sums(context);
}

template <class T>
void run_backward(const ir::ExecContext& context, i64 vocabulary) {
  const Head<T> head(context, vocabulary);
  const double d_ce = context.input(4).as<double>()[0] / head.denominator;
  const double d_z = context.input(5).as<double>()[0] / head.denominator;
  T* dx = context.output(2).as<T>();
  T* dweight = context.output(3).as<T>();
  if (!context.accumulate) {  // chunks add to the vocabulary's rows; padding rows stay zero
    std::fill_n(dweight, context.output(3).elements(), T{0});
  }
  const auto differentiate = [&](i64 t, T* row) {
    const RowLoss<T> loss = lose(head, t, row);
    if (!loss.counts) {
      std::fill_n(row, vocabulary, T{0});
      return;
    }
    // d_ce (p - one_hot) + d_z 2 lse p, with p = row * inverse.
    const T factor = static_cast<T>(d_ce + 2 * d_z * static_cast<double>(loss.lse)) * loss.inverse;
    for (i64 v = 0; v < vocabulary; ++v) {
      row[v] *= factor;
    }
    row[head.targets[t]] -= static_cast<T>(d_ce);
  };
  for_each_chunk(head, differentiate, [&](i64 begin, i64 end) {
    kernels::gemm(head.pool, false, false, end - begin, head.width, vocabulary, head.logits, vocabulary,
                  head.weight, head.width, false, dx + begin * head.width, head.width);
    kernels::gemm(head.pool, true, false, vocabulary, head.width, end - begin, head.logits, vocabulary,
                  head.x + begin * head.width, head.width, true, dweight, head.width);
  });
  head.write_sums(context);
}

Expected<std::vector<ir::TensorType>> infer_losses(std::span<const ir::TensorType> inputs, i64 vocabulary,
                                                   std::size_t num_scalars) {
  bool valid = inputs.size() == 3 + num_scalars && is_compute(inputs[0], 2) && is_compute(inputs[1], 2) &&
               inputs[0].dtype == inputs[1].dtype && inputs[0].shape[1] == inputs[1].shape[1] &&
               inputs[1].shape[0] >= vocabulary && is_type(inputs[2], DType::kI32, {inputs[0].shape[0]});
  for (std::size_t i = 3; valid && i < inputs.size(); ++i) {
    valid = is_scalar(inputs[i]);
  }
  if (!valid) {
    return ir::shape_error(
        fmt::format("needs x F[T,d], weight F[V,d] with V >= {}, targets i32[T] and {}, F = "
                    "f32 or f64",
                    vocabulary, num_scalars == 1 ? "denominator f64[1]" : "denominator, d_ce and d_z f64[1]"),
        inputs);
  }
  return std::vector<ir::TensorType>{{DType::kF64, {1}}, {DType::kF64, {1}}};
}

double multiply_adds(std::span<const ir::TensorType> inputs, i64 vocabulary) {
  return static_cast<double>(inputs[0].elements()) * static_cast<double>(vocabulary);
}

// Cases.
struct Example {
  i64 tokens;
  i64 width;
  i64 vocabulary;
  i64 padded;

  [[nodiscard]] std::string label() const {
    return fmt::format("T={} d={} vocabulary={} V={}", tokens, width, vocabulary, padded);
  }
  // x, weight, targets (some ignored), denominator.
  [[nodiscard]] std::vector<ir::CaseInput> inputs(DType dtype) const {
    ir::CaseInput targets{{DType::kI32, {tokens}}};
    for (i64 t = 0; t < tokens; ++t) {
      targets.values.push_back(t % 5 == 3 ? kIgnoredTarget : static_cast<double>(t * 7 % vocabulary));
    }
    return {{{dtype, {tokens, width}}},
            {{dtype, {padded, width}}},
            targets,
            {{DType::kF64, {1}}, {static_cast<double>(tokens) + 0.5}}};
  }
};

// Sums of losses and the gradients dx, dweight, word by word.
ir::Values oracle(const Example& e, const ir::Values& in, double d_ce, double d_z) {
  ir::Values out = {
      {0.0}, {0.0}, std::vector<double>(in[0].size(), 0.0), std::vector<double>(in[1].size(), 0.0)};
  const auto d = static_cast<std::size_t>(e.width);
  for (std::size_t t = 0; t < static_cast<std::size_t>(e.tokens); ++t) {
    if (in[2][t] == -100) {
      continue;
    }
    std::vector<double> logits(static_cast<std::size_t>(e.vocabulary), 0.0);
    double sum = 0;
    for (std::size_t v = 0; v < logits.size(); ++v) {
      for (std::size_t j = 0; j < d; ++j) {
        logits[v] += in[0][t * d + j] * in[1][v * d + j];
      }
      sum += std::exp(logits[v]);
    }
    const double lse = std::log(sum);
    const auto target = static_cast<std::size_t>(in[2][t]);
    out[0][0] += (lse - logits[target]) / in[3][0];
    out[1][0] += lse * lse / in[3][0];
    for (std::size_t v = 0; v < logits.size(); ++v) {
      const double p = std::exp(logits[v] - lse);
      const double dlogit = (d_ce * (p - (v == target ? 1 : 0)) + d_z * 2 * lse * p) / in[3][0];
      for (std::size_t j = 0; j < d; ++j) {
        out[2][t * d + j] += dlogit * in[1][v * d + j];
        out[3][v * d + j] += dlogit * in[0][t * d + j];
      }
    }
  }
  return out;
}

ir::OpCase head_loss_case(DType dtype, const Example& e) {
  ir::OpCase example;
  example.label = e.label();
  example.op = std::make_shared<HeadLoss>(e.vocabulary);
  example.inputs = e.inputs(dtype);
  example.oracle = [e](const ir::Values& in) {
    ir::Values out = oracle(e, in, 0, 0);
    out.resize(2);
    return out;
  };
  example.differentiable = {0, 1};
  example.reduction_length = e.vocabulary + e.width;
  return example;
}

ir::OpCase head_loss_backward_case(DType dtype, const Example& e) {
  ir::OpCase example;
  example.label = e.label();
  example.op = std::make_shared<HeadLossBackward>(e.vocabulary);
  example.inputs = e.inputs(dtype);
  example.inputs.push_back({{DType::kF64, {1}}, {1.25}});
  example.inputs.push_back({{DType::kF64, {1}}, {0.25}});
  example.oracle = [e](const ir::Values& in) { return oracle(e, in, in[4][0], in[5][0]); };
  example.reduction_length = e.vocabulary + e.width + e.tokens;
  return example;
}

template <ir::OpCase (*kCase)(DType, const Example&)>
std::vector<ir::OpCase> cases(DType dtype) {
  return {kCase(dtype, {7, 5, 11, 16}), kCase(dtype, {1, 1, 2, 3}), kCase(dtype, {67, 17, 131, 131}),
          kCase(dtype, {137, 3, 2053, 2056}),  // two chunks on the CPU
          kCase(dtype, {1031, 3, 5, 6})};      // and on CUDA
}

}  // namespace

void HeadLoss::visit_attributes(ir::AttributeVisitor& visitor) const {
  visitor.visit("vocabulary", vocabulary_);
}

Expected<std::vector<ir::TensorType>> HeadLoss::infer(std::span<const ir::TensorType> inputs) const {
  return infer_losses(inputs, vocabulary_, 1);
}

std::vector<ir::ValueId> HeadLoss::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                       std::span<const ir::ValueId> cotangents) const {
  const auto or_zero = [&](ir::ValueId cotangent) {
    return cotangent == ir::kNoValue ? fill(builder, 0.0, {DType::kF64, {1}}) : cotangent;
  };
  const ir::ValueId d_ce = or_zero(cotangents[0]);
  const ir::ValueId d_z = or_zero(cotangents[1]);
  const HeadLossGradients gradients = head_loss_backward(
      builder, node.inputs[0], node.inputs[1], node.inputs[2], node.inputs[3], d_ce, d_z, vocabulary_);
  return {gradients.dx, gradients.dweight, ir::kNoValue, ir::kNoValue};
}

ir::Cost HeadLoss::cost(std::span<const ir::TensorType> inputs,
                        std::span<const ir::TensorType> outputs) const {
  ir::Cost cost = Op::cost(inputs, outputs);
  cost.flops = 2 * multiply_adds(inputs, vocabulary_);
  return cost;
}

i64 HeadLoss::workspace(std::span<const ir::TensorType> inputs,
                        std::span<const ir::TensorType> /*outputs*/) const {
  const Workspace workspace = workspace_of(inputs[0], vocabulary_);
  return workspace.logits + workspace.losses;
}

i64 HeadLoss::cuda_workspace(std::span<const ir::TensorType> inputs,
                             std::span<const ir::TensorType> /*outputs*/,
                             const CudaTarget& /*target*/) const {
  return HeadLossScratch(inputs[0].shape[0], vocabulary_).bytes;
}

void HeadLoss::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) { run_loss<T>(context, vocabulary_); });
}

void HeadLossBackward::visit_attributes(ir::AttributeVisitor& visitor) const {
  visitor.visit("vocabulary", vocabulary_);
}

Expected<std::vector<ir::TensorType>> HeadLossBackward::infer(std::span<const ir::TensorType> inputs) const {
  WYCH_TRY(std::vector<ir::TensorType> outputs, infer_losses(inputs, vocabulary_, 3));
  outputs.push_back(inputs[0]);
  outputs.push_back(inputs[1]);
  return outputs;
}

ir::Cost HeadLossBackward::cost(std::span<const ir::TensorType> inputs,
                                std::span<const ir::TensorType> outputs) const {
  ir::Cost cost = Op::cost(inputs, outputs);
  cost.flops = 6 * multiply_adds(inputs, vocabulary_);
  return cost;
}

i64 HeadLossBackward::workspace(std::span<const ir::TensorType> inputs,
                                std::span<const ir::TensorType> /*outputs*/) const {
  const Workspace workspace = workspace_of(inputs[0], vocabulary_);
  return workspace.logits + workspace.losses;
}

i64 HeadLossBackward::cuda_workspace(std::span<const ir::TensorType> inputs,
                                     std::span<const ir::TensorType> /*outputs*/,
                                     const CudaTarget& /*target*/) const {
  return HeadLossScratch(inputs[0].shape[0], vocabulary_).bytes;
}

void HeadLossBackward::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) { run_backward<T>(context, vocabulary_); });
}

HeadLosses head_loss(ir::Builder& builder, ir::ValueId x, ir::ValueId weight, ir::ValueId targets,
                     ir::ValueId denominator, i64 vocabulary) {
  const std::vector<ir::ValueId> outputs =
      builder.add(std::make_shared<HeadLoss>(vocabulary), {x, weight, targets, denominator});
  return {outputs[0], outputs[1]};
}

HeadLossGradients head_loss_backward(ir::Builder& builder, ir::ValueId x, ir::ValueId weight,
                                     ir::ValueId targets, ir::ValueId denominator, ir::ValueId d_ce,
                                     ir::ValueId d_z, i64 vocabulary, ir::ValueId accumulator) {
  const std::vector<ir::ValueId> outputs =
      builder.add(std::make_shared<HeadLossBackward>(vocabulary),
                  {x, weight, targets, denominator, d_ce, d_z}, accumulator);
  return {outputs[0], outputs[1], outputs[2], outputs[3]};
}

void register_head_loss(ir::Registry& registry) {
  registry.add("head_loss", cases<head_loss_case>);
  registry.add("head_loss_backward", cases<head_loss_backward_case>);
}

}  // namespace wych::ops
