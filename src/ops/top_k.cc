// Insertion into the k best so far: after the first k columns most are rejected by one comparison.
// top_k_test.cc has what the cases cannot express: NaN scores.
#include "ops/top_k.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "ir/builder.h"
#include "ops/row_chunks.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

// Strictly before in the order, so that equal scores stay in the order of columns.
template <class T>
bool better(T a, T b) {
  return a > b || (a == a && b != b);
}

// Keeps the best so far sorted; a column enters by insertion, which is rare after the first k.
template <class T>
void top_k_row(const T* scores, i64 experts, i64 k, T* values, i32* indices) {
  for (i64 e = 0; e < experts; ++e) {
    i64 slot = std::min(e, k);
    if (slot == k && !better(scores[e], values[k - 1])) {
      continue;
    }
    slot = std::min(slot, k - 1);
    for (; slot > 0 && better(scores[e], values[slot - 1]); --slot) {
      values[slot] = values[slot - 1];
      indices[slot] = indices[slot - 1];
    }
    values[slot] = scores[e];
    indices[slot] = static_cast<i32>(e);
  }
}

ir::Values top_k_oracle(const ir::Values& inputs, i64 experts, i64 k) {
  const auto n = static_cast<std::size_t>(experts);
  ir::Values outputs(2);
  for (std::size_t row = 0; row < inputs[0].size(); row += n) {
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), row);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return inputs[0][a] > inputs[0][b]; });
    for (std::size_t j = 0; j < static_cast<std::size_t>(k); ++j) {
      outputs[0].push_back(inputs[0][order[j]]);
      outputs[1].push_back(static_cast<double>(order[j] - row));
    }
  }
  return outputs;
}

ir::Values top_k_dx_oracle(const ir::Values& inputs, i64 experts, i64 k) {
  const std::size_t tokens = inputs[0].size() / static_cast<std::size_t>(k);
  std::vector<double> dscores(tokens * static_cast<std::size_t>(experts));
  for (std::size_t route = 0; route < inputs[0].size(); ++route) {
    const std::size_t token = route / static_cast<std::size_t>(k);
    dscores[token * static_cast<std::size_t>(experts) + static_cast<std::size_t>(inputs[1][route])] =
        inputs[0][route];
  }
  return {dscores};
}

struct TopKExample {
  const char* label;
  i64 tokens, experts, k;
};
constexpr TopKExample kExamples[] = {
    {"T=7 E=5 k=2", 7, 5, 2},       {"T=1 E=1 k=1", 1, 1, 1},     {"T=3 E=4 k=4", 3, 4, 4},
    {"T=1031 E=8 k=2", 1031, 8, 2}, {"T=2 E=131 k=7", 2, 131, 7},
};

// Scores of a row are a permutation of 0, 1/E, ..: any two are far apart, so finite differences are safe.
std::vector<double> distinct_scores(const TopKExample& shape) {
  std::vector<double> scores;
  for (i64 t = 0; t < shape.tokens; ++t) {
    for (i64 e = 0; e < shape.experts; ++e) {
      scores.push_back(static_cast<double>((e * 3 + t * 5) * 2 % shape.experts) /
                       static_cast<double>(shape.experts));
    }
  }
  return scores;
}

ir::OpCase top_k_case(DType dtype, const TopKExample& shape, std::vector<double> scores) {
  ir::OpCase example;
  example.label = shape.label;
  example.op = std::make_shared<TopK>(shape.k);
  example.inputs = {{{dtype, {shape.tokens, shape.experts}}, std::move(scores)}};
  example.oracle = [shape](const ir::Values& inputs) { return top_k_oracle(inputs, shape.experts, shape.k); };
  return example;
}

std::vector<ir::OpCase> top_k_cases(DType dtype) {
  std::vector<ir::OpCase> cases;
  for (const TopKExample& shape : kExamples) {
    cases.push_back(top_k_case(dtype, shape, {}));
  }
  constexpr TopKExample kDistinct = {"T=11 E=13 k=3 distinct scores", 11, 13, 3};
  cases.push_back(top_k_case(dtype, kDistinct, distinct_scores(kDistinct)));
  cases.back().differentiable = {0};
  constexpr TopKExample kTies = {"T=3 E=4 k=2 ties", 3, 4, 2};
  cases.push_back(top_k_case(dtype, kTies, {1, 1, 1, 1, 0, 2, 2, 3, -1, -1, 5, 5}));
  return cases;
}

std::vector<ir::OpCase> top_k_dx_cases(DType dtype) {
  std::vector<ir::OpCase> cases;
  for (const TopKExample& shape : kExamples) {
    ir::OpCase example;
    example.label = shape.label;
    example.op = std::make_shared<TopKDx>(shape.experts);
    std::vector<double> indices;
    for (i64 route = 0; route < shape.tokens * shape.k; ++route) {
      indices.push_back(static_cast<double>((route / shape.k * 7 + route % shape.k) % shape.experts));
    }
    const ir::Shape routes = {shape.tokens, shape.k};
    example.inputs = {{{dtype, routes}, {}}, {{DType::kI32, routes}, std::move(indices)}};
    example.oracle = [shape](const ir::Values& inputs) {
      return top_k_dx_oracle(inputs, shape.experts, shape.k);
    };
    cases.push_back(std::move(example));
  }
  return cases;
}

}  // namespace

Expected<std::vector<ir::TensorType>> TopK::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 1 || !is_compute(inputs[0], 2) || k_ < 1 || k_ > inputs[0].shape[1] ||
      inputs[0].shape[1] > std::numeric_limits<i32>::max()) {
    return ir::shape_error(fmt::format("needs scores F[T,E] with E >= k = {} >= 1", k_), inputs);
  }
  const ir::Shape routes = {inputs[0].shape[0], k_};
  return std::vector<ir::TensorType>{{inputs[0].dtype, routes}, {DType::kI32, routes}};
}

std::vector<ir::ValueId> TopK::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                   std::span<const ir::ValueId> cotangents) const {
  const i64 experts = builder.type(node.inputs[0]).shape[1];
  return {builder.add_one(std::make_shared<TopKDx>(experts), {cotangents[0], node.outputs[1]})};
}

void TopK::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) {
    const T* scores = context.input(0).as<T>();
    T* values = context.output(0).as<T>();
    i32* indices = context.output(1).as<i32>();
    const i64 experts = context.input(0).dim(1);
    const i64 k = k_;
    context.pool->parallel_chunks(
        context.input(0).dim(0), rows_per_chunk(4 * experts), [&](i64 begin, i64 end) {
          for (i64 token = begin; token < end; ++token) {
            top_k_row(scores + token * experts, experts, k, values + token * k, indices + token * k);
          }
        });
  });
}

Expected<std::vector<ir::TensorType>> TopKDx::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 2 || !is_compute(inputs[0], 2) || !is_type(inputs[1], DType::kI32, inputs[0].shape)) {
    return ir::shape_error("needs dvalues F[T,k] and indices i32[T,k]", inputs);
  }
  return std::vector<ir::TensorType>{{inputs[0].dtype, {inputs[0].shape[0], experts_}}};
}

void TopKDx::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) {
    const T* dvalues = context.input(0).as<T>();
    const i32* indices = context.input(1).as<i32>();
    T* dscores = context.output(0).as<T>();
    const i64 experts = experts_;
    const i64 k = context.input(0).dim(1);
    context.pool->parallel_chunks(
        context.input(0).dim(0), rows_per_chunk(experts + k), [&](i64 begin, i64 end) {
          std::fill(dscores + begin * experts, dscores + end * experts, T{0});
          for (i64 route = begin * k; route < end * k; ++route) {
            WYCH_DCHECK(indices[route] >= 0 && indices[route] < experts, "expert {}", indices[route]);
            dscores[route / k * experts + indices[route]] = dvalues[route];
          }
        });
  });
}

TopKValues top_k(ir::Builder& builder, ir::ValueId scores, i64 k) {
  const std::vector<ir::ValueId> outputs = builder.add(std::make_shared<TopK>(k), {scores});
  return {.values = outputs[0], .indices = outputs[1]};
}

void register_top_k(ir::Registry& registry) {
  registry.add("top_k", top_k_cases);
  registry.add("top_k_dx", top_k_dx_cases);
}

}  // namespace wych::ops
