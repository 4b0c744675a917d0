// Serial products of kernels/gemm.h over tiles of every segment, all experts in one parallel loop, so that
// one expert with many rows does not leave threads idle. moe_cases.h holds the routings of the cases.
#include "ops/grouped_linear.h"

#include <algorithm>

#include "ir/builder.h"
#include "kernels/gemm.h"
#include "ops/moe_cases.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

// The part of a product that one thread computes at a time: as in kernels/gemm.cc.
constexpr i64 kRowTile = 192;
constexpr i64 kColumnTile = 128;

i64 num_row_tiles(const i32* offsets, i64 expert) {
  return ceil_div(i64{offsets[expert + 1]} - offsets[expert], kRowTile);
}

// Calls body(expert, first row, end row, first column, end column) for every tile of the segments' rows
// times [0, columns). A tile finds its expert by walking the offsets, which is nothing next to its product.
template <class Body>
void for_each_tile(ThreadPool& pool, const i32* offsets, i64 experts, i64 columns, const Body& body) {
  i64 tiles = 0;
  for (i64 expert = 0; expert < experts; ++expert) {
    tiles += num_row_tiles(offsets, expert);
  }
  const i64 column_tiles = ceil_div(columns, kColumnTile);
  pool.parallel_for(tiles * column_tiles, [&](i64 index) {
    i64 tile = index / column_tiles;
    i64 expert = 0;
    for (; tile >= num_row_tiles(offsets, expert); ++expert) {
      tile -= num_row_tiles(offsets, expert);
    }
    const i64 row = offsets[expert] + tile * kRowTile;
    const i64 column = index % column_tiles * kColumnTile;
    body(expert, row, std::min<i64>(row + kRowTile, offsets[expert + 1]), column,
         std::min(column + kColumnTile, columns));
  });
}

double product_flops(i64 rows, i64 n, i64 k) {
  return 2 * static_cast<double>(rows) * static_cast<double>(n) * static_cast<double>(k);
}

// Cases: n and k of the five routings.
constexpr i64 kWidths[][2] = {{5, 3}, {1, 1}, {67, 70}, {3, 2}, {35, 19}};

std::size_t at(i64 row, i64 width, i64 column) { return static_cast<std::size_t>(row * width + column); }

// `product(expert, row, i, j)` is called for every used row, i in [0, n) and j in [0, k).
template <class Product>
void for_each_product(const Routing& routing, i64 n, i64 k, const Product& product) {
  for (i64 row = 0; row < routing.used_rows(); ++row) {
    const i64 expert = routing.expert_of_row(row);
    for (i64 i = 0; i < n; ++i) {
      for (i64 j = 0; j < k; ++j) {
        product(expert, row, i, j);
      }
    }
  }
}

enum class Pass { kForward, kDx, kDw };

ir::Values product_oracle(const Routing& routing, Pass pass, i64 n, i64 k, const ir::Values& inputs) {
  const i64 sizes[] = {routing.capacity * n, routing.capacity * k, routing.experts * n * k};
  std::vector<double> out(static_cast<std::size_t>(sizes[static_cast<int>(pass)]));
  for_each_product(routing, n, k, [&](i64 expert, i64 row, i64 i, i64 j) {
    const std::size_t w = at(expert, n * k, i * k + j);
    const std::size_t y = at(row, n, i);
    const std::size_t x = at(row, k, j);
    switch (pass) {
      case Pass::kForward:
        out[y] += inputs[0][x] * inputs[1][w];
        break;
      case Pass::kDx:
        out[x] += inputs[0][y] * inputs[1][w];
        break;
      case Pass::kDw:
        out[w] += inputs[0][y] * inputs[1][x];
        break;
    }
  });
  return {out};
}

template <class Op, Pass pass>
std::vector<ir::OpCase> cases_of(DType dtype) {
  std::vector<ir::OpCase> cases;
  std::size_t index = 0;
  for (const Routing& routing : routing_examples()) {
    const auto [n, k] = kWidths[index++];
    const ir::CaseInput w = {{dtype, {routing.experts, n, k}}, {}};
    ir::OpCase example;
    example.label = routing.label;
    example.op = std::make_shared<Op>();
    example.inputs = {routing.rows_input(dtype, pass == Pass::kForward ? k : n),
                      pass == Pass::kDw ? routing.rows_input(dtype, k) : w, routing.offsets_input()};
    example.oracle = [routing, n = n, k = k](const ir::Values& inputs) {
      return product_oracle(routing, pass, n, k, inputs);
    };
    if (pass != Pass::kDw) {
      example.defined = [used = routing.used_rows() * (pass == Pass::kForward ? n : k)](
                            int, i64 element, const ir::Values&) { return element < used; };
    }
    if (pass == Pass::kForward) {
      example.differentiable = {0, 1};
    }
    example.reduction_length = pass == Pass::kForward ? k : pass == Pass::kDx ? n : routing.used_rows();
    cases.push_back(std::move(example));
  }
  return cases;
}

}  // namespace

Expected<std::vector<ir::TensorType>> GroupedLinear::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 3 || !is_compute(inputs[0], 2) || inputs[1].dtype != inputs[0].dtype ||
      inputs[1].shape.rank() != 3 || inputs[1].shape[2] != inputs[0].shape[1] ||
      !is_type(inputs[2], DType::kI32, {inputs[1].shape[0] + 1})) {
    return ir::shape_error("needs x F[C,k], w F[E,n,k] and offsets i32[E+1]", inputs);
  }
  return std::vector<ir::TensorType>{{inputs[0].dtype, {inputs[0].shape[0], inputs[1].shape[1]}}};
}

std::vector<ir::ValueId> GroupedLinear::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                            std::span<const ir::ValueId> cotangents) const {
  const ir::ValueId dx =
      builder.add_one(std::make_shared<GroupedLinearDx>(), {cotangents[0], node.inputs[1], node.inputs[2]});
  const ir::ValueId dw =
      builder.add_one(std::make_shared<GroupedLinearDw>(), {cotangents[0], node.inputs[0], node.inputs[2]});
  return {dx, dw, ir::kNoValue};
}

ir::Cost GroupedLinear::cost(std::span<const ir::TensorType> inputs,
                             std::span<const ir::TensorType> outputs) const {
  ir::Cost cost = Op::cost(inputs, outputs);
  cost.flops = product_flops(inputs[0].shape[0], inputs[1].shape[1], inputs[1].shape[2]);
  return cost;
}

void GroupedLinear::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) {
    const T* x = context.input(0).as<T>();
    const T* w = context.input(1).as<T>();
    T* y = context.output(0).as<T>();
    const i64 experts = context.input(1).dim(0);
    const i64 n = context.input(1).dim(1);
    const i64 k = context.input(1).dim(2);
    for_each_tile(*context.pool, context.input(2).as<i32>(), experts, n,
                  [&](i64 expert, i64 row, i64 row_end, i64 column, i64 column_end) {
                    kernels::gemm_serial(false, true, row_end - row, column_end - column, k, x + row * k, k,
                                         w + (expert * n + column) * k, k, false, y + row * n + column, n);
                  });
  });
}

Expected<std::vector<ir::TensorType>> GroupedLinearDx::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 3 || !is_compute(inputs[0], 2) || inputs[1].dtype != inputs[0].dtype ||
      inputs[1].shape.rank() != 3 || inputs[1].shape[1] != inputs[0].shape[1] ||
      !is_type(inputs[2], DType::kI32, {inputs[1].shape[0] + 1})) {
    return ir::shape_error("needs dy F[C,n], w F[E,n,k] and offsets i32[E+1]", inputs);
  }
  return std::vector<ir::TensorType>{{inputs[0].dtype, {inputs[0].shape[0], inputs[1].shape[2]}}};
}

ir::Cost GroupedLinearDx::cost(std::span<const ir::TensorType> inputs,
                               std::span<const ir::TensorType> outputs) const {
  ir::Cost cost = Op::cost(inputs, outputs);
  cost.flops = product_flops(inputs[0].shape[0], inputs[1].shape[1], inputs[1].shape[2]);
  return cost;
}

void GroupedLinearDx::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) {
    const T* dy = context.input(0).as<T>();
    const T* w = context.input(1).as<T>();
    T* dx = context.output(0).as<T>();
    const i64 experts = context.input(1).dim(0);
    const i64 n = context.input(1).dim(1);
    const i64 k = context.input(1).dim(2);
    for_each_tile(*context.pool, context.input(2).as<i32>(), experts, k,
                  [&](i64 expert, i64 row, i64 row_end, i64 column, i64 column_end) {
                    kernels::gemm_serial(false, false, row_end - row, column_end - column, n, dy + row * n, n,
                                         w + expert * n * k + column, k, false, dx + row * k + column, k);
                  });
  });
}

Expected<std::vector<ir::TensorType>> GroupedLinearDw::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 3 || !is_compute(inputs[0], 2) || inputs[1].dtype != inputs[0].dtype ||
      inputs[1].shape.rank() != 2 || inputs[1].shape[0] != inputs[0].shape[0] || !is_index(inputs[2], 1) ||
      inputs[2].shape[0] < 1) {
    return ir::shape_error("needs dy F[C,n], x F[C,k] and offsets i32[E+1]", inputs);
  }
  return std::vector<ir::TensorType>{
      {inputs[0].dtype, {inputs[2].shape[0] - 1, inputs[0].shape[1], inputs[1].shape[1]}}};
}

ir::Cost GroupedLinearDw::cost(std::span<const ir::TensorType> inputs,
                               std::span<const ir::TensorType> outputs) const {
  ir::Cost cost = Op::cost(inputs, outputs);
  cost.flops = product_flops(inputs[0].shape[0], inputs[0].shape[1], inputs[1].shape[1]);
  return cost;
}

void GroupedLinearDw::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) {
    const T* dy = context.input(0).as<T>();
    const T* x = context.input(1).as<T>();
    const i32* offsets = context.input(2).as<i32>();
    T* dw = context.output(0).as<T>();
    const i64 n = context.input(0).dim(1);
    const i64 k = context.input(1).dim(1);
    const i64 row_tiles = ceil_div(n, kRowTile);
    const i64 column_tiles = ceil_div(k, kColumnTile);
    context.pool->parallel_for(context.output(0).dim(0) * row_tiles * column_tiles, [&](i64 index) {
      const i64 expert = index / (row_tiles * column_tiles);
      const i64 i = index / column_tiles % row_tiles * kRowTile;
      const i64 j = index % column_tiles * kColumnTile;
      const i64 row = offsets[expert];
      kernels::gemm_serial(true, false, std::min(kRowTile, n - i), std::min(kColumnTile, k - j),
                           offsets[expert + 1] - row, dy + row * n + i, n, x + row * k + j, k,
                           context.accumulate, dw + (expert * n + i) * k + j, k);
    });
  });
}

ir::ValueId grouped_linear(ir::Builder& builder, ir::ValueId x, ir::ValueId w, ir::ValueId offsets) {
  return builder.add_one(std::make_shared<GroupedLinear>(), {x, w, offsets});
}

void register_grouped_linear(ir::Registry& registry) {
  registry.add("grouped_linear", cases_of<GroupedLinear, Pass::kForward>);
  registry.add("grouped_linear_dx", cases_of<GroupedLinearDx, Pass::kDx>);
  registry.add("grouped_linear_dw", cases_of<GroupedLinearDw, Pass::kDw>);
}

}  // namespace wych::ops
