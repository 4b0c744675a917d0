// A copy of whole rows in the order in which they lie, so every written line is written once.
// moe_cases.h holds the routings of the cases.
#include "ops/moe_permute.h"

#include <algorithm>

#include "ir/builder.h"
#include "ops/moe_cases.h"
#include "ops/moe_combine.h"
#include "ops/row_chunks.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

constexpr i64 kWidths[] = {5, 1, 1032, 3, 37};  // of the five routings

std::vector<ir::OpCase> moe_permute_cases(DType dtype) {
  std::vector<ir::OpCase> cases;
  std::size_t index = 0;
  for (const Routing& routing : routing_examples()) {
    const i64 width = kWidths[index++];
    ir::OpCase example;
    example.label = routing.label;
    example.op = std::make_shared<MoePermute>();
    example.inputs = {{{dtype, {routing.tokens, width}}, {}},
                      routing.route_of_row_input(),
                      routing.row_of_route_input(),
                      routing.offsets_input()};
    example.oracle = [routing, columns = static_cast<std::size_t>(width)](const ir::Values& inputs) {
      std::vector<double> rows(static_cast<std::size_t>(routing.capacity) * columns);
      for (std::size_t route = 0; route < routing.row_of_route.size(); ++route) {
        for (std::size_t column = 0; column < columns; ++column) {
          rows[static_cast<std::size_t>(routing.row_of_route[route]) * columns + column] =
              inputs[0][route / static_cast<std::size_t>(routing.k) * columns + column];
        }
      }
      return ir::Values{rows};
    };
    example.defined = [used = routing.used_rows() * width](int, i64 element, const ir::Values&) {
      return element < used;
    };
    example.differentiable = {0};
    example.reduction_length = routing.k;
    cases.push_back(std::move(example));
  }
  return cases;
}

}  // namespace

Expected<std::vector<ir::TensorType>> MoePermute::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 4 || !is_activation(inputs[0], 2) || !is_index(inputs[1], 1) ||
      !is_index(inputs[2], 2) || !is_index(inputs[3], 1) || inputs[2].shape[0] != inputs[0].shape[0]) {
    return ir::shape_error("needs x A[T,d], route_of_row i32[C], row_of_route i32[T,k] and offsets i32[E+1]",
                           inputs);
  }
  return std::vector<ir::TensorType>{{inputs[0].dtype, {inputs[1].shape[0], inputs[0].shape[1]}}};
}

std::vector<ir::ValueId> MoePermute::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                         std::span<const ir::ValueId> cotangents) const {
  const Placement placement = {.offsets = node.inputs[3],
                               .counts = ir::kNoValue,
                               .row_of_route = node.inputs[2],
                               .route_of_row = node.inputs[1]};
  return {moe_combine(builder, cotangents[0], placement), ir::kNoValue, ir::kNoValue, ir::kNoValue};
}

void MoePermute::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) {
    const T* x = context.input(0).as<T>();
    const i32* route_of_row = context.input(1).as<i32>();
    T* rows = context.output(0).as<T>();
    const i64 d = context.input(0).dim(1);
    const i64 k = context.input(2).dim(1);
    const i64 used_rows = context.input(3).as<i32>()[context.input(3).dim(0) - 1];
    context.pool->parallel_chunks(used_rows, rows_per_chunk(d), [&](i64 begin, i64 end) {
      for (i64 row = begin; row < end; ++row) {
        const i64 route = route_of_row[row];
        if (route < 0) {
          std::fill_n(rows + row * d, d, T{0});
        } else {
          std::copy_n(x + route / k * d, d, rows + row * d);
        }
      }
    });
  });
}

ir::ValueId moe_permute(ir::Builder& builder, ir::ValueId x, const Placement& placement) {
  return builder.add_one(std::make_shared<MoePermute>(),
                         {x, placement.route_of_row, placement.row_of_route, placement.offsets});
}

void register_moe_permute(ir::Registry& registry) { registry.add("moe_permute", moe_permute_cases); }

}  // namespace wych::ops
