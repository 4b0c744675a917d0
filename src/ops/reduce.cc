#include "ops/reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "ir/builder.h"
#include "ops/binary.h"
#include "ops/elementwise.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"reduce_sum", "reduce_max", "reduce_mean"};

std::string_view along_name(Along along) { return along == Along::kLast ? "last" : "rows"; }

// The side that is left: extent of the reduced tensor.
i64 kept(const ir::Shape& shape, Along along) { return along == Along::kLast ? shape.rows() : shape[-1]; }
// Entries behind one reduced value.
i64 reduced(const ir::Shape& shape, Along along) { return along == Along::kLast ? shape[-1] : shape.rows(); }

// Position of entry `j` of the `i`-th reduced value.
i64 position(const ir::Shape& shape, Along along, i64 i, i64 j) {
  return along == Along::kLast ? i * shape[-1] + j : j * shape[-1] + i;
}

ir::ValueId reduce(ir::Builder& builder, ReduceKind kind, ir::ValueId x, Along along) {
  return builder.add_one(std::make_shared<Reduce>(kind, along), {x});
}

}  // namespace

std::string_view Reduce::name() const { return kNames[static_cast<std::size_t>(kind_)]; }

void Reduce::visit_attributes(ir::AttributeVisitor& visitor) const {
  visitor.visit("along", along_name(along_));
}

Expected<std::vector<ir::TensorType>> Reduce::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 1 || !is_compute(inputs[0].dtype) || inputs[0].shape.rank() < 1) {
    return ir::shape_error("needs one f32 or f64 input of rank 1 or more", inputs);
  }
  if (kind_ != ReduceKind::kSum && reduced(inputs[0].shape, along_) == 0) {
    return ir::shape_error("needs at least one entry to reduce", inputs);
  }
  return std::vector<ir::TensorType>{{inputs[0].dtype, {kept(inputs[0].shape, along_)}}};
}

std::vector<ir::ValueId> Reduce::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                     std::span<const ir::ValueId> cotangents) const {
  const ir::ValueId x = node.inputs[0];
  const ir::Shape shape = builder.type(x).shape;
  switch (kind_) {
    case ReduceKind::kSum:
      return {broadcast(builder, cotangents[0], shape, along_)};
    case ReduceKind::kMean: {
      const auto count = static_cast<double>(reduced(shape, along_));
      return {broadcast(builder, scale(builder, cotangents[0], 1 / count), shape, along_)};
    }
    case ReduceKind::kMax: {
      const ir::ValueId mask = equal(builder, x, broadcast(builder, node.outputs[0], shape, along_));
      const ir::ValueId share = div(builder, cotangents[0], reduce_sum(builder, mask, along_));
      return {mul(builder, mask, broadcast(builder, share, shape, along_))};
    }
  }
  return {ir::kNoValue};
}

ReducePieces::ReducePieces(const ir::Shape& shape, Along along) {
  constexpr i64 kMostPieces = 512;
  // A warp reduces a piece of a row; a block one of several columns, each by as many threads as fit.
  const i64 columns = std::clamp<i64>(shape[-1], 1, kThreads);
  const i64 shortest = along == Along::kLast ? 2048 : kThreads / columns * 32;
  length = std::max(shortest, ceil_div(reduced(shape, along), kMostPieces));
  count = std::max<i64>(1, ceil_div(reduced(shape, along), length));
}

i64 Reduce::cuda_workspace(std::span<const ir::TensorType> inputs, std::span<const ir::TensorType> outputs,
                           const CudaTarget& /*target*/) const {
  const i64 pieces = ReducePieces(inputs[0].shape, along_).count;
  return pieces > 1 ? pieces * outputs[0].bytes() : 0;
}

void Reduce::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.output(0).type->dtype, [&]<class T>(T) {
    const ir::Shape& shape = context.input(0).type->shape;
    const T* x = context.input(0).as<T>();
    T* y = context.output(0).as<T>();
    const i64 count = reduced(shape, along_);
    for (i64 i = 0; i < kept(shape, along_); ++i) {
      T value = kind_ == ReduceKind::kMax ? x[position(shape, along_, i, 0)] : T{0};
      for (i64 j = 0; j < count; ++j) {
        const T entry = x[position(shape, along_, i, j)];
        if (kind_ != ReduceKind::kMax) {
          value += entry;
        } else if (entry > value || entry != entry) {
          value = entry;
        }
      }
      y[i] = kind_ == ReduceKind::kMean ? value / static_cast<T>(count) : value;
    }
  });
}

void Broadcast::visit_attributes(ir::AttributeVisitor& visitor) const {
  visitor.visit("shape", fmt::format("[{}]", fmt::join(shape_.dims(), ",")));
  visitor.visit("along", along_name(along_));
}

Expected<std::vector<ir::TensorType>> Broadcast::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 1 || !is_compute(inputs[0].dtype) || shape_.rank() < 1 ||
      inputs[0].shape != ir::Shape{kept(shape_, along_)}) {
    return ir::shape_error(
        fmt::format("needs one value, f32 or f64, for each {} of [{}]",
                    along_ == Along::kLast ? "row" : "column", fmt::join(shape_.dims(), ",")),
        inputs);
  }
  return std::vector<ir::TensorType>{{inputs[0].dtype, shape_}};
}

std::vector<ir::ValueId> Broadcast::vjp(ir::Builder& builder, const ir::NodeValues& /*node*/,
                                        std::span<const ir::ValueId> cotangents) const {
  return {reduce_sum(builder, cotangents[0], along_)};
}

void Broadcast::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.output(0).type->dtype, [&]<class T>(T) {
    const T* x = context.input(0).as<T>();
    T* y = context.output(0).as<T>();
    for (i64 i = 0; i < kept(shape_, along_); ++i) {
      for (i64 j = 0; j < reduced(shape_, along_); ++j) {
        y[position(shape_, along_, i, j)] = x[i];
      }
    }
  });
}

ir::ValueId reduce_sum(ir::Builder& builder, ir::ValueId x, Along along) {
  return reduce(builder, ReduceKind::kSum, x, along);
}
ir::ValueId reduce_max(ir::Builder& builder, ir::ValueId x, Along along) {
  return reduce(builder, ReduceKind::kMax, x, along);
}
ir::ValueId reduce_mean(ir::Builder& builder, ir::ValueId x, Along along) {
  return reduce(builder, ReduceKind::kMean, x, along);
}
ir::ValueId broadcast(ir::Builder& builder, ir::ValueId x, const ir::Shape& shape, Along along) {
  return builder.add_one(std::make_shared<Broadcast>(shape, along), {x});
}

namespace {

// Walks the matrix once, in memory order.
ir::Values expected_reduction(ReduceKind kind, const ir::Shape& shape, Along along,
                              const ir::Values& inputs) {
  const auto columns = static_cast<std::size_t>(shape[-1]);
  const auto size = static_cast<std::size_t>(kept(shape, along));
  std::vector<double> result(size, kind == ReduceKind::kMax ? -1e300 : 0.0);
  for (std::size_t p = 0; p < inputs[0].size(); ++p) {
    double& value = result[along == Along::kLast ? p / columns : p % columns];
    value = kind == ReduceKind::kMax ? std::max(value, inputs[0][p]) : value + inputs[0][p];
  }
  if (kind == ReduceKind::kMean) {
    for (double& value : result) {
      value = value * static_cast<double>(size) / static_cast<double>(inputs[0].size());
    }
  }
  return {result};
}

ir::OpCase reduce_case(ReduceKind kind, Along along, std::string label, DType dtype, const ir::Shape& shape) {
  ir::OpCase example;
  example.label = fmt::format("{} along {}", label, along_name(along));
  example.op = std::make_shared<Reduce>(kind, along);
  example.inputs = {{{dtype, shape}}};
  example.oracle = [=](const ir::Values& inputs) { return expected_reduction(kind, shape, along, inputs); };
  example.differentiable = {0};
  example.reduction_length = std::max<i64>(1, reduced(shape, along));
  return example;
}

std::vector<ir::OpCase> reduce_cases(ReduceKind kind, DType dtype) {
  std::vector<ir::OpCase> cases;
  for (const Along along : {Along::kLast, Along::kRows}) {
    cases.push_back(reduce_case(kind, along, "2 x 3 x 5", dtype, {2, 3, 5}));
    cases.push_back(reduce_case(kind, along, "7", dtype, {7}));
    cases.push_back(reduce_case(kind, along, "1 x 1", dtype, {1, 1}));
    // Several pieces (ReducePieces) of a long row, of narrow rows, and of rows wider than a block.
    for (const ir::Shape& shape : {ir::Shape{2, 4099}, ir::Shape{5443, 3}, ir::Shape{67, 259}}) {
      cases.push_back(reduce_case(kind, along, fmt::format("{} x {}", shape[0], shape[1]), dtype, shape));
      if (kind == ReduceKind::kMax) {
        cases.back().differentiable = {};  // so many entries leave the largest no room for differences
      }
    }
  }
  if (kind == ReduceKind::kSum) {
    cases.push_back(reduce_case(kind, Along::kRows, "0 x 3", dtype, {0, 3}));
  }
  return cases;
}

ir::OpCase broadcast_case(Along along, std::string label, DType dtype, const ir::Shape& shape) {
  ir::OpCase example;
  example.label = fmt::format("{} along {}", label, along_name(along));
  example.op = std::make_shared<Broadcast>(shape, along);
  example.inputs = {{{dtype, {kept(shape, along)}}}};
  example.oracle = [=](const ir::Values& inputs) {
    const auto columns = static_cast<std::size_t>(shape[-1]);
    std::vector<double> result(static_cast<std::size_t>(shape.elements()));
    for (std::size_t p = 0; p < result.size(); ++p) {
      result[p] = inputs[0][along == Along::kLast ? p / columns : p % columns];
    }
    return ir::Values{result};
  };
  example.differentiable = {0};
  return example;
}

std::vector<ir::OpCase> broadcast_cases(DType dtype) {
  std::vector<ir::OpCase> cases;
  for (const Along along : {Along::kLast, Along::kRows}) {
    cases.push_back(broadcast_case(along, "2 x 3 x 5", dtype, {2, 3, 5}));
    cases.push_back(broadcast_case(along, "7", dtype, {7}));
    cases.push_back(broadcast_case(along, "19 x 259", dtype, {19, 259}));
    cases.push_back(broadcast_case(along, "0 x 3", dtype, {0, 3}));
  }
  return cases;
}

}  // namespace

void register_reduce(ir::Registry& registry) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    const auto kind = static_cast<ReduceKind>(i);
    registry.add(std::string(kNames[i]), [kind](DType dtype) { return reduce_cases(kind, dtype); });
  }
  registry.add("broadcast", broadcast_cases);
}

}  // namespace wych::ops
