// Gathers of whole rows: every pass reads each used row once; sums over slots stay in the first-level cache.
// moe_cases.h holds the routings of the cases, whose oracles follow the routes one element at a time.
#include "ops/moe_combine.h"

#include <algorithm>

#include "ir/builder.h"
#include "ops/moe_cases.h"
#include "ops/moe_permute.h"
#include "ops/row_chunks.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

// out = sum_j weights[j] rows[row_of_slot[j]]; without weights they are one.
template <class T, bool kWeighted>
void combine_token(const T* rows, const i32* row_of_slot, const T* weights, i64 k, i64 d, T* out) {
  for (i64 j = 0; j < k; ++j) {
    const T* __restrict__ row = rows + i64{row_of_slot[j]} * d;
    T* __restrict__ sum = out;
    const T weight = kWeighted ? weights[j] : T{1};
    if (j == 0) {
      for (i64 i = 0; i < d; ++i) {
        sum[i] = kWeighted ? weight * row[i] : row[i];
      }
    } else {
      for (i64 i = 0; i < d; ++i) {
        sum[i] += kWeighted ? weight * row[i] : row[i];
      }
    }
  }
}

template <class T, bool kWeighted>
void combine(const ir::ExecContext& context) {
  const T* rows = context.input(0).as<T>();
  const i32* row_of_route = context.input(1).as<i32>();
  const T* weights = kWeighted ? context.input(4).as<T>() : nullptr;
  T* out = context.output(0).as<T>();
  const i64 k = context.input(1).dim(1);
  const i64 d = context.input(0).dim(1);
  context.pool->parallel_chunks(context.output(0).dim(0), rows_per_chunk(k * d), [&](i64 begin, i64 end) {
    for (i64 token = begin; token < end; ++token) {
      combine_token<T, kWeighted>(rows, row_of_route + token * k, kWeighted ? weights + token * k : nullptr,
                                  k, d, out + token * d);
    }
  });
}

// Flops of a multiply-add per element of the gathered rows, and their bytes.
ir::Cost gather_cost(const ir::TensorType& rows, const ir::TensorType& row_of_route) {
  const i64 elements = row_of_route.elements() * rows.shape[1];
  return {.flops = 2 * static_cast<double>(elements),
          .bytes_read = static_cast<double>(elements * dtype_bytes(rows.dtype) + row_of_route.bytes()),
          .bytes_written = 0,
          .bytes_communicated = 0};
}

constexpr i64 kWidths[] = {5, 1, 132, 3, 37};  // of the five routings

ir::Values combine_oracle(const Routing& routing, i64 d, const ir::Values& inputs) {
  std::vector<double> out(static_cast<std::size_t>(routing.tokens * d));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const i64 token = static_cast<i64>(i) / d;
    for (i64 j = 0; j < routing.k; ++j) {
      const auto route = static_cast<std::size_t>(token * routing.k + j);
      const i64 row = static_cast<i64>(routing.row_of_route[route]);
      out[i] += (inputs.size() > 4 ? inputs[4][route] : 1.0) *
                inputs[0][static_cast<std::size_t>(row * d + static_cast<i64>(i) % d)];
    }
  }
  return {out};
}

std::vector<ir::OpCase> moe_combine_cases(DType dtype) {
  std::vector<ir::OpCase> cases;
  std::size_t index = 0;
  for (const Routing& routing : routing_examples()) {
    const i64 d = kWidths[index++];
    for (const bool weighted : {true, false}) {
      ir::OpCase example;
      example.label = routing.label + (weighted ? " weighted" : " plain sum");
      example.op = std::make_shared<MoeCombine>(weighted);
      example.inputs = {routing.rows_input(dtype, d), routing.row_of_route_input(),
                        routing.route_of_row_input(), routing.offsets_input()};
      example.differentiable = {0};
      if (weighted) {
        example.inputs.push_back({{dtype, {routing.tokens, routing.k}}, {}});
        example.differentiable.push_back(4);
      }
      example.oracle = [routing, d](const ir::Values& inputs) { return combine_oracle(routing, d, inputs); };
      example.reduction_length = std::max(routing.k, d);  // that of the gradients, too
      cases.push_back(std::move(example));
    }
  }
  return cases;
}

std::vector<ir::OpCase> moe_combine_drows_cases(DType dtype) {
  std::vector<ir::OpCase> cases;
  std::size_t index = 0;
  for (const Routing& routing : routing_examples()) {
    const i64 d = kWidths[index++];
    ir::OpCase example;
    example.label = routing.label;
    example.op = std::make_shared<MoeCombineDrows>();
    example.inputs = {{{dtype, {routing.tokens, d}}, {}},
                      {{dtype, {routing.tokens, routing.k}}, {}},
                      routing.route_of_row_input(),
                      routing.offsets_input()};
    example.oracle = [routing, d](const ir::Values& inputs) {
      std::vector<double> drows(static_cast<std::size_t>(routing.capacity * d));
      for (std::size_t route = 0; route < routing.row_of_route.size(); ++route) {
        const i64 token = static_cast<i64>(route) / routing.k;
        for (i64 i = 0; i < d; ++i) {
          drows[static_cast<std::size_t>(static_cast<i64>(routing.row_of_route[route]) * d + i)] =
              inputs[1][route] * inputs[0][static_cast<std::size_t>(token * d + i)];
        }
      }
      return ir::Values{drows};
    };
    example.defined = [used = routing.used_rows() * d](int, i64 element, const ir::Values&) {
      return element < used;
    };
    cases.push_back(std::move(example));
  }
  return cases;
}

std::vector<ir::OpCase> moe_combine_dweights_cases(DType dtype) {
  std::vector<ir::OpCase> cases;
  std::size_t index = 0;
  for (const Routing& routing : routing_examples()) {
    const i64 d = kWidths[index++];
    ir::OpCase example;
    example.label = routing.label;
    example.op = std::make_shared<MoeCombineDweights>();
    example.inputs = {
        {{dtype, {routing.tokens, d}}, {}}, routing.rows_input(dtype, d), routing.row_of_route_input()};
    example.oracle = [routing, d](const ir::Values& inputs) {
      std::vector<double> dweights(routing.row_of_route.size());
      for (std::size_t route = 0; route < dweights.size(); ++route) {
        const i64 token = static_cast<i64>(route) / routing.k;
        for (i64 i = 0; i < d; ++i) {
          dweights[route] +=
              inputs[0][static_cast<std::size_t>(token * d + i)] *
              inputs[1][static_cast<std::size_t>(static_cast<i64>(routing.row_of_route[route]) * d + i)];
        }
      }
      return ir::Values{dweights};
    };
    example.reduction_length = d;
    cases.push_back(std::move(example));
  }
  return cases;
}

}  // namespace

Expected<std::vector<ir::TensorType>> MoeCombine::infer(std::span<const ir::TensorType> inputs) const {
  const std::size_t arity = weighted_ ? 5 : 4;
  if (inputs.size() != arity || !is_compute(inputs[0], 2) || !is_index(inputs[1], 2) ||
      !is_type(inputs[2], DType::kI32, {inputs[0].shape[0]}) || !is_index(inputs[3], 1) ||
      inputs[1].shape[1] == 0 || (weighted_ && !is_type(inputs[4], inputs[0].dtype, inputs[1].shape))) {
    return ir::shape_error(
        fmt::format("needs rows F[C,d], row_of_route i32[T,k], route_of_row i32[C]{}",
                    weighted_ ? ", offsets i32[E+1] and weights F[T,k]" : " and offsets i32[E+1]"),
        inputs);
  }
  return std::vector<ir::TensorType>{{inputs[0].dtype, {inputs[1].shape[0], inputs[0].shape[1]}}};
}

std::vector<ir::ValueId> MoeCombine::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                         std::span<const ir::ValueId> cotangents) const {
  const Placement placement = {.offsets = node.inputs[3],
                               .counts = ir::kNoValue,
                               .row_of_route = node.inputs[1],
                               .route_of_row = node.inputs[2]};
  const ir::ValueId dout = cotangents[0];
  if (!weighted_) {
    return {moe_permute(builder, dout, placement), ir::kNoValue, ir::kNoValue, ir::kNoValue};
  }
  const ir::ValueId drows = builder.add_one(
      std::make_shared<MoeCombineDrows>(), {dout, node.inputs[4], placement.route_of_row, placement.offsets});
  const ir::ValueId dweights =
      builder.add_one(std::make_shared<MoeCombineDweights>(), {dout, node.inputs[0], placement.row_of_route});
  return {drows, ir::kNoValue, ir::kNoValue, ir::kNoValue, dweights};
}

ir::Cost MoeCombine::cost(std::span<const ir::TensorType> inputs,
                          std::span<const ir::TensorType> outputs) const {
  ir::Cost cost = gather_cost(inputs[0], inputs[1]);
  cost.bytes_read += weighted_ ? static_cast<double>(inputs[4].bytes()) : 0;
  cost.bytes_written = static_cast<double>(outputs[0].bytes());
  return cost;
}

void MoeCombine::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype,
                 [&]<class T>(T) { weighted_ ? combine<T, true>(context) : combine<T, false>(context); });
}

Expected<std::vector<ir::TensorType>> MoeCombineDrows::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 4 || !is_compute(inputs[0], 2) || inputs[1].dtype != inputs[0].dtype ||
      inputs[1].shape.rank() != 2 || inputs[1].shape[0] != inputs[0].shape[0] || !is_index(inputs[2], 1) ||
      !is_index(inputs[3], 1)) {
    return ir::shape_error("needs dout F[T,d], weights F[T,k], route_of_row i32[C] and offsets i32[E+1]",
                           inputs);
  }
  return std::vector<ir::TensorType>{{inputs[0].dtype, {inputs[2].shape[0], inputs[0].shape[1]}}};
}

void MoeCombineDrows::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) {
    const T* dout = context.input(0).as<T>();
    const T* weights = context.input(1).as<T>();
    const i32* route_of_row = context.input(2).as<i32>();
    T* drows = context.output(0).as<T>();
    const i64 d = context.input(0).dim(1);
    const i64 k = context.input(1).dim(1);
    const i64 used_rows = context.input(3).as<i32>()[context.input(3).dim(0) - 1];
    context.pool->parallel_chunks(used_rows, rows_per_chunk(d), [&](i64 begin, i64 end) {
      for (i64 row = begin; row < end; ++row) {
        const i64 route = route_of_row[row];
        T* __restrict__ to = drows + row * d;
        if (route < 0) {
          std::fill_n(to, d, T{0});
          continue;
        }
        const T* __restrict__ from = dout + route / k * d;
        const T weight = weights[route];
        for (i64 i = 0; i < d; ++i) {
          to[i] = weight * from[i];
        }
      }
    });
  });
}

Expected<std::vector<ir::TensorType>> MoeCombineDweights::infer(
    std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 3 || !is_compute(inputs[0], 2) || inputs[1].dtype != inputs[0].dtype ||
      inputs[1].shape.rank() != 2 || inputs[1].shape[1] != inputs[0].shape[1] || !is_index(inputs[2], 2) ||
      inputs[2].shape[0] != inputs[0].shape[0]) {
    return ir::shape_error("needs dout F[T,d], rows F[C,d] and row_of_route i32[T,k]", inputs);
  }
  return std::vector<ir::TensorType>{{inputs[0].dtype, inputs[2].shape}};
}

ir::Cost MoeCombineDweights::cost(std::span<const ir::TensorType> inputs,
                                  std::span<const ir::TensorType> outputs) const {
  ir::Cost cost = gather_cost(inputs[1], inputs[2]);
  cost.bytes_read += static_cast<double>(inputs[0].bytes());
  cost.bytes_written = static_cast<double>(outputs[0].bytes());
  return cost;
}

void MoeCombineDweights::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) {
    const T* dout = context.input(0).as<T>();
    const T* rows = context.input(1).as<T>();
    const i32* row_of_route = context.input(2).as<i32>();
    T* dweights = context.output(0).as<T>();
    const i64 d = context.input(0).dim(1);
    const i64 k = context.input(2).dim(1);
    context.pool->parallel_chunks(context.input(0).dim(0), rows_per_chunk(k * d), [&](i64 begin, i64 end) {
      for (i64 token = begin; token < end; ++token) {
        for (i64 route = token * k; route < (token + 1) * k; ++route) {
          dweights[route] = dot(dout + token * d, rows + i64{row_of_route[route]} * d, d);
        }
      }
    });
  });
}

ir::ValueId moe_combine(ir::Builder& builder, ir::ValueId rows, const Placement& placement,
                        ir::ValueId weights) {
  std::vector<ir::ValueId> inputs = {rows, placement.row_of_route, placement.route_of_row, placement.offsets};
  const bool weighted = weights != ir::kNoValue;
  if (weighted) {
    inputs.push_back(weights);
  }
  return builder.add_one(std::make_shared<MoeCombine>(weighted), std::move(inputs));
}

void register_moe_combine(ir::Registry& registry) {
  registry.add("moe_combine", moe_combine_cases);
  registry.add("moe_combine_drows", moe_combine_drows_cases);
  registry.add("moe_combine_dweights", moe_combine_dweights_cases);
}

}  // namespace wych::ops
