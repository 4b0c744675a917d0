// One sweep over p, g, m and v, bound by memory. Constants are folded so that an element costs one division
// and one square root. The cases' oracle is the textbook form with m / c1 and v / c2.
#include "ops/adamw.h"

#include <cmath>
#include <limits>

#include "ir/builder.h"
#include "ops/row_chunks.h"
#include "ops/step_decision.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

// One step's scalars in the type of the elements.
template <class T>
struct Scalars {
  T clip;           // factor of the gradient
  T blend1;         // 1 - beta1
  T keep2, blend2;  // beta2, 1 - beta2
  T shrink;         // 1 - lr weight_decay
  T step;           // lr / c1
  T root;           // 1 / sqrt(c2)
  T eps;
};

template <class T>
Scalars<T> scalars(const AdamWOptions& options, const double* decision) {
  const double rate = decision[Decision::kLearningRate];
  return {.clip = static_cast<T>(decision[Decision::kClipCoefficient]),
          .blend1 = static_cast<T>(1 - options.beta1),
          .keep2 = static_cast<T>(options.beta2),
          .blend2 = static_cast<T>(1 - options.beta2),
          .shrink = static_cast<T>(1 - rate * options.weight_decay),
          .step = static_cast<T>(rate / decision[Decision::kBiasCorrection1]),
          .root = static_cast<T>(1 / std::sqrt(decision[Decision::kBiasCorrection2])),
          .eps = static_cast<T>(options.eps)};
}

template <class T>
void update(const Scalars<T>& s, const T* __restrict__ g, T* __restrict__ p, T* __restrict__ m,
            T* __restrict__ v, i64 n) {
  for (i64 i = 0; i < n; ++i) {
    const T gradient = g[i] * s.clip;
    m[i] += s.blend1 * (gradient - m[i]);
    v[i] = v[i] * s.keep2 + s.blend2 * (gradient * gradient);
    p[i] = p[i] * s.shrink - s.step * (m[i] / (std::sqrt(v[i]) * s.root + s.eps));
  }
}

std::vector<double> example_decision(bool applied, double clip) {
  std::vector<double> decision(Decision::kSize);
  decision[Decision::kApplied] = applied ? 1 : 0;
  decision[Decision::kClipCoefficient] = clip;
  decision[Decision::kLearningRate] = 0.01;
  decision[Decision::kBiasCorrection1] = 1 - std::pow(0.9, 3);
  decision[Decision::kBiasCorrection2] = 1 - std::pow(0.95, 3);
  return decision;
}

ir::Values adamw_oracle(const AdamWOptions& options, const ir::Values& inputs) {
  const std::vector<double>& decision = inputs[4];
  ir::Values outputs = {inputs[0], inputs[2], inputs[3]};
  if (options.copy) {
    outputs.push_back(inputs[5]);
  }
  for (std::size_t i = 0; i < inputs[0].size() && decision[Decision::kApplied] != 0; ++i) {
    const double g = inputs[1][i] * decision[Decision::kClipCoefficient];
    const double m = options.beta1 * inputs[2][i] + (1 - options.beta1) * g;
    const double v = options.beta2 * inputs[3][i] + (1 - options.beta2) * g * g;
    const double direction = m / decision[Decision::kBiasCorrection1] /
                             (std::sqrt(v / decision[Decision::kBiasCorrection2]) + options.eps);
    outputs[0][i] =
        inputs[0][i] - decision[Decision::kLearningRate] * (options.weight_decay * inputs[0][i] + direction);
    outputs[1][i] = m;
    outputs[2][i] = v;
    if (options.copy) {
      outputs[3][i] = outputs[0][i];
    }
  }
  return outputs;
}

ir::OpCase adamw_case(std::string label, DType dtype, const ir::Shape& shape, double decay, bool applied,
                      bool copy = false) {
  const AdamWOptions options = {.weight_decay = decay, .copy = copy};
  const ir::TensorType type = {dtype, shape};
  ir::OpCase example;
  example.label = std::move(label);
  example.op = std::make_shared<AdamW>(options);
  example.inputs = {{type, {}},
                    {type, {}, -2, 2},
                    {type, {}},
                    {type, {}, 0, 1},
                    {{DType::kF64, {Decision::kSize}}, example_decision(applied, 0.25)}};
  if (copy) {
    example.inputs.push_back({{DType::kBF16, shape}});
  }
  if (!applied) {  // a gradient that must not be read
    example.inputs[1].values.assign(static_cast<std::size_t>(type.elements()),
                                    std::numeric_limits<double>::quiet_NaN());
  }
  example.oracle = [options](const ir::Values& inputs) { return adamw_oracle(options, inputs); };
  return example;
}

std::vector<ir::OpCase> adamw_cases(DType dtype) {
  return {adamw_case("a matrix with decay", dtype, {7, 5}, 0.1, true),
          adamw_case("a vector without decay", dtype, {13}, 0, true),
          adamw_case("one element", dtype, {1}, 0.1, true),
          adamw_case("several chunks", dtype, {3, kElementsPerChunk / 2 + 1}, 0.1, true),
          adamw_case("not applied", dtype, {7, 5}, 0.1, false),
          adamw_case("with a copy", dtype, {9, 12}, 0.1, true, true),
          adamw_case("with a copy of odd size", dtype, {7, 5}, 0.1, true, true),
          adamw_case("with a copy, not applied", dtype, {7, 5}, 0.1, false, true)};
}

}  // namespace

void AdamW::visit_attributes(ir::AttributeVisitor& visitor) const {
  visitor.visit("beta1", options_.beta1);
  visitor.visit("beta2", options_.beta2);
  visitor.visit("eps", options_.eps);
  visitor.visit("weight_decay", options_.weight_decay);
  if (options_.copy) {
    visitor.visit("copy", i64{1});
  }
}

Expected<std::vector<ir::TensorType>> AdamW::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != (options_.copy ? 6U : 5U) || !is_compute(inputs[0].dtype) || inputs[1] != inputs[0] ||
      inputs[2] != inputs[0] || inputs[3] != inputs[0] ||
      !is_type(inputs[4], DType::kF64, {Decision::kSize}) ||
      (options_.copy && !is_type(inputs[5], DType::kBF16, inputs[0].shape))) {
    return ir::shape_error(
        fmt::format("needs p, g, m, v of one type F[..], decision f64[{}]{}",
                    static_cast<i64>(Decision::kSize), options_.copy ? " and the copy bf16[..] of p" : ""),
        inputs);
  }
  std::vector<ir::TensorType> outputs = {inputs[0], inputs[2], inputs[3]};
  if (inputs.size() == 6) {
    outputs.push_back(inputs[5]);
  }
  return outputs;
}

ir::Cost AdamW::cost(std::span<const ir::TensorType> inputs, std::span<const ir::TensorType> outputs) const {
  ir::Cost cost = Op::cost(inputs, outputs);
  cost.flops = 15 * static_cast<double>(inputs[0].elements());
  return cost;
}

std::vector<ir::Alias> AdamW::aliases() const {
  std::vector<ir::Alias> aliases = {
      {0, 0, ir::AliasKind::kInPlace}, {2, 1, ir::AliasKind::kInPlace}, {3, 2, ir::AliasKind::kInPlace}};
  if (options_.copy) {
    aliases.push_back({5, 3, ir::AliasKind::kInPlace});
  }
  return aliases;
}

void AdamW::run_cpu(const ir::ExecContext& context) const {
  const double* decision = context.input(4).as<double>();
  if (decision[Decision::kApplied] == 0) {
    return;
  }
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) {
    const Scalars<T> step = scalars<T>(options_, decision);
    const T* g = context.input(1).as<T>();
    T* p = context.output(0).as<T>();
    T* m = context.output(1).as<T>();
    T* v = context.output(2).as<T>();
    context.pool->parallel_chunks(context.input(0).elements(), kElementsPerChunk, [&](i64 begin, i64 end) {
      update(step, g + begin, p + begin, m + begin, v + begin, end - begin);
      if (options_.copy) {
        bf16* copy = context.output(3).as<bf16>();
        for (i64 i = begin; i < end; ++i) {
          copy[i] = bf16(static_cast<float>(p[i]));
        }
      }
    });
  });
}

AdamWValues adamw(ir::Builder& builder, ir::ValueId parameter, ir::ValueId gradient, ir::ValueId m,
                  ir::ValueId v, ir::ValueId decision, ir::ValueId copy, const AdamWOptions& options) {
  AdamWOptions chosen = options;
  chosen.copy = copy != ir::kNoValue;
  std::vector<ir::ValueId> inputs = {parameter, gradient, m, v, decision};
  if (chosen.copy) {
    inputs.push_back(copy);
  }
  const std::vector<ir::ValueId> outputs = builder.add(std::make_shared<AdamW>(chosen), std::move(inputs));
  return {.parameter = outputs[0],
          .m = outputs[1],
          .v = outputs[2],
          .copy = chosen.copy ? outputs[3] : ir::kNoValue};
}

void register_adamw(ir::Registry& registry) { registry.add("adamw", adamw_cases); }

}  // namespace wych::ops
