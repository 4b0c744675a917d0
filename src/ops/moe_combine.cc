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

// out = sum_j rows[row_of_slot[j]].
template <class T>
void combine_token(const T* rows, const i32* row_of_slot, i64 k, i64 d, T* out) {
  for (i64 j = 0; j < k; ++j) {
    const T* __restrict__ row = rows + i64{row_of_slot[j]} * d;
    T* __restrict__ sum = out;
    if (j == 0) {
      for (i64 i = 0; i < d; ++i) {
        sum[i] = row[i];
      }
    } else {
      for (i64 i = 0; i < d; ++i) {
        sum[i] += row[i];
      }
    }
  }
}

template <class T>
void combine(const ir::ExecContext& context) {
  const T* rows = context.input(0).as<T>();
  const i32* row_of_route = context.input(1).as<i32>();
  T* out = context.output(0).as<T>();
  const i64 k = context.input(1).dim(1);
  const i64 d = context.input(0).dim(1);
  context.pool->parallel_chunks(context.output(0).dim(0), rows_per_chunk(k * d), [&](i64 begin, i64 end) {
    for (i64 token = begin; token < end; ++token) {
      combine_token(rows, row_of_route + token * k, k, d, out + token * d);
    }
  });
}

constexpr i64 kWidths[] = {5, 1, 1032, 3, 37};  // of the five routings

ir::Values combine_oracle(const Routing& routing, i64 d, const ir::Values& inputs) {
  std::vector<double> out(static_cast<std::size_t>(routing.tokens * d));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const i64 token = static_cast<i64>(i) / d;
    for (i64 j = 0; j < routing.k; ++j) {
      const auto route = static_cast<std::size_t>(token * routing.k + j);
      const i64 row = static_cast<i64>(routing.row_of_route[route]);
      out[i] += inputs[0][static_cast<std::size_t>(row * d + static_cast<i64>(i) % d)];
    }
  }
  return {out};
}

std::vector<ir::OpCase> moe_combine_cases(DType dtype) {
  std::vector<ir::OpCase> cases;
  std::size_t index = 0;
  for (const Routing& routing : routing_examples()) {
    const i64 d = kWidths[index++];
    ir::OpCase example;
    example.label = routing.label;
    example.op = std::make_shared<MoeCombine>();
    example.inputs = {routing.rows_input(dtype, d), routing.row_of_route_input(),
                      routing.route_of_row_input(), routing.offsets_input()};
    example.differentiable = {0};
    example.oracle = [routing, d](const ir::Values& inputs) { return combine_oracle(routing, d, inputs); };
    example.reduction_length = routing.k;
    cases.push_back(std::move(example));
  }
  return cases;
}

}  // namespace

Expected<std::vector<ir::TensorType>> MoeCombine::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 4 || !is_activation(inputs[0], 2) || !is_index(inputs[1], 2) ||
      !is_type(inputs[2], DType::kI32, {inputs[0].shape[0]}) || !is_index(inputs[3], 1) ||
      inputs[1].shape[1] == 0) {
    return ir::shape_error(
        "needs rows A[C,d], row_of_route i32[T,k], route_of_row i32[C] and offsets i32[E+1]", inputs);
  }
  return std::vector<ir::TensorType>{{inputs[0].dtype, {inputs[1].shape[0], inputs[0].shape[1]}}};
}

std::vector<ir::ValueId> MoeCombine::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                         std::span<const ir::ValueId> cotangents) const {
  const Placement placement = {.offsets = node.inputs[3],
                               .counts = ir::kNoValue,
                               .row_of_route = node.inputs[1],
                               .route_of_row = node.inputs[2]};
  return {moe_permute(builder, cotangents[0], placement), ir::kNoValue, ir::kNoValue, ir::kNoValue};
}

// An addition per element of the gathered rows, and their bytes.
ir::Cost MoeCombine::cost(std::span<const ir::TensorType> inputs,
                          std::span<const ir::TensorType> outputs) const {
  const i64 elements = inputs[1].elements() * inputs[0].shape[1];
  return {.flops = static_cast<double>(elements),
          .bytes_read = static_cast<double>(elements * dtype_bytes(inputs[0].dtype) + inputs[1].bytes()),
          .bytes_written = static_cast<double>(outputs[0].bytes()),
          .bytes_communicated = 0};
}

void MoeCombine::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) { combine<T>(context); });
}

ir::ValueId moe_combine(ir::Builder& builder, ir::ValueId rows, const Placement& placement) {
  return builder.add_one(std::make_shared<MoeCombine>(),
                         {rows, placement.row_of_route, placement.route_of_row, placement.offsets});
}

void register_moe_combine(ir::Registry& registry) { registry.add("moe_combine", moe_combine_cases); }

}  // namespace wych::ops
