// Sums through a small buffer that stays in the first-level cache: each term is read once, y written once.
#include "ops/add_n.h"

#include <algorithm>

#include "ir/builder.h"
#include "ops/row_chunks.h"

namespace wych::ops {
namespace {

// A block at a time through a buffer, so that y may share memory with any of the terms.
template <class T>
void add_terms(const ir::ExecContext& context) {
  constexpr i64 kBlock = 512;
  T* y = context.output(0).as<T>();
  context.pool->parallel_chunks(context.output(0).elements(), kElementsPerChunk, [&](i64 begin, i64 end) {
    T sum[kBlock];
    for (i64 first = begin; first < end; first += kBlock) {
      const i64 n = std::min(kBlock, end - first);
      std::copy_n(context.input(0).as<T>() + first, n, sum);
      for (const ir::View& term : context.inputs.subspan(1)) {
        const T* x = term.as<T>() + first;
        for (i64 i = 0; i < n; ++i) {
          sum[i] += x[i];
        }
      }
      std::copy_n(sum, n, y + first);
    }
  });
}

ir::OpCase add_n_case(std::string label, const ir::TensorType& type, std::size_t terms) {
  const bool floating = is_float(type.dtype);
  const double bound = floating ? 1.0 : 1000.0;
  ir::OpCase example;
  example.label = std::move(label);
  example.op = std::make_shared<AddN>();
  for (std::size_t term = 0; term < terms; ++term) {
    example.inputs.push_back({type, {}, -bound, bound});
    if (floating) {
      example.differentiable.push_back(static_cast<int>(term));
    }
  }
  example.oracle = [](const ir::Values& inputs) {
    std::vector<double> sum(inputs[0].size());
    for (const std::vector<double>& term : inputs) {
      for (std::size_t i = 0; i < sum.size(); ++i) {
        sum[i] += term[i];
      }
    }
    return ir::Values{sum};
  };
  example.reduction_length = static_cast<i64>(terms);
  return example;
}

std::vector<ir::OpCase> add_n_cases(DType dtype) {
  return {add_n_case("3 matrices", {dtype, {7, 3}}, 3),
          add_n_case("1 term", {dtype, {5}}, 1),
          add_n_case("7 terms of one element", {dtype, {1}}, 7),
          add_n_case("2 terms of several chunks", {dtype, {kElementsPerChunk + 3}}, 2),
          add_n_case("3 terms of i32", {DType::kI32, {17}}, 3),
          add_n_case("2 terms of i64", {DType::kI64, {2, 3}}, 2)};
}

}  // namespace

Expected<std::vector<ir::TensorType>> AddN::infer(std::span<const ir::TensorType> inputs) const {
  const bool same = std::all_of(inputs.begin(), inputs.end(),
                                [&](const ir::TensorType& type) { return type == inputs[0]; });
  if (inputs.empty() || !same || inputs[0].dtype == DType::kBF16 || inputs[0].dtype == DType::kU8) {
    return ir::shape_error("needs at least one input, all of one type: f32, f64, i32 or i64", inputs);
  }
  return std::vector<ir::TensorType>{inputs[0]};
}

std::vector<ir::ValueId> AddN::vjp(ir::Builder& /*builder*/, const ir::NodeValues& node,
                                   std::span<const ir::ValueId> cotangents) const {
  return std::vector<ir::ValueId>(node.inputs.size(), cotangents[0]);
}

ir::Cost AddN::cost(std::span<const ir::TensorType> inputs, std::span<const ir::TensorType> outputs) const {
  ir::Cost cost = Op::cost(inputs, outputs);
  cost.flops = static_cast<double>(static_cast<i64>(inputs.size() - 1) * outputs[0].elements());
  return cost;
}

std::vector<ir::Alias> AddN::aliases() const { return {{0, 0, ir::AliasKind::kMay}}; }

void AddN::run_cpu(const ir::ExecContext& context) const {
  switch (context.output(0).type->dtype) {
    case DType::kF32:
      return add_terms<float>(context);
    case DType::kF64:
      return add_terms<double>(context);
    case DType::kI32:
      return add_terms<i32>(context);
    default:
      return add_terms<i64>(context);
  }
}

ir::ValueId add_n(ir::Builder& builder, std::span<const ir::ValueId> terms) {
  return builder.add_one(std::make_shared<AddN>(), {terms.begin(), terms.end()});
}

void register_add_n(ir::Registry& registry) { registry.add("add_n", add_n_cases); }

}  // namespace wych::ops
