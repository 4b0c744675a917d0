// A row at a time. moe_cases.h holds the routings of the cases, whose oracles follow the routes.
#include "ops/moe_swiglu.h"

#include <algorithm>
#include <cmath>

#include "ir/builder.h"
#include "kernels/vector_math.h"
#include "ops/moe_cases.h"
#include "ops/row_chunks.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

i64 used_rows(const ir::View& offsets) { return offsets.as<i32>()[offsets.elements() - 1]; }

template <class T>
void activate(const ir::ExecContext& context) {
  const T* gu = context.input(0).as<T>();
  const T* weights = context.input(1).as<T>();
  const i32* route_of_row = context.input(2).as<i32>();
  T* h = context.output(0).as<T>();
  const i64 width = context.output(0).dim(1);
  context.pool->parallel_chunks(used_rows(context.input(3)), rows_per_chunk(2 * width),
                                [&](i64 begin, i64 end) {
                                  for (i64 r = begin; r < end; ++r) {
                                    const T* gate = gu + 2 * r * width;
                                    const T* up = gate + width;
                                    const T weight = route_of_row[r] < 0 ? T{0} : weights[route_of_row[r]];
                                    T* to = h + r * width;
#pragma GCC ivdep
                                    for (i64 j = 0; j < width; ++j) {
                                      to[j] = weight * (kernels::silu(gate[j]) * up[j]);
                                    }
                                  }
                                });
}

// Columns of a row that are summed side by side.
constexpr i64 kLanes = 16;

// The gradient of `count` <= kLanes columns, in place if need be; adds dh gate s up to `sums`.
template <class T>
void activate_dx_lanes(const T* dh, const T* gate, const T* up, T weight, i64 count, T* dgate, T* dup,
                       T* sums) {
#pragma GCC ivdep
  for (i64 j = 0; j < count; ++j) {
    const T g = gate[j];
    const T u = up[j];
    const T s = kernels::sigmoid(g);
    const T d = dh[j] * s;
    sums[j] += d * g * u;
    dgate[j] = weight * d * u * (T{1} + g * (T{1} - s));
    dup[j] = weight * d * g;
  }
}

template <class T>
void activate_dx(const ir::ExecContext& context) {
  const T* dh = context.input(0).as<T>();
  const T* gu = context.input(1).as<T>();
  const T* weights = context.input(2).as<T>();
  const i32* route_of_row = context.input(3).as<i32>();
  T* dgu = context.output(0).as<T>();
  T* dweights = context.output(1).as<T>();
  const i64 width = context.input(0).dim(1);
  context.pool->parallel_chunks(used_rows(context.input(4)), rows_per_chunk(2 * width),
                                [&](i64 begin, i64 end) {
                                  for (i64 r = begin; r < end; ++r) {
                                    const i64 route = route_of_row[r];
                                    const T weight = route < 0 ? T{0} : weights[route];
                                    T sums[kLanes] = {};
                                    for (i64 j = 0; j < width; j += kLanes) {
                                      const i64 gate = 2 * r * width + j;
                                      const i64 up = gate + width;
                                      if (j + kLanes <= width) {  // a constant count, which vectorises
                                        activate_dx_lanes(dh + r * width + j, gu + gate, gu + up, weight,
                                                          kLanes, dgu + gate, dgu + up, sums);
                                      } else {
                                        activate_dx_lanes(dh + r * width + j, gu + gate, gu + up, weight,
                                                          width - j, dgu + gate, dgu + up, sums);
                                      }
                                    }
                                    if (route >= 0) {
                                      T sum = 0;
                                      for (const T lane : sums) {
                                        sum += lane;
                                      }
                                      dweights[route] = sum;
                                    }
                                  }
                                });
}

bool are_routed(std::span<const ir::TensorType> routed, const ir::TensorType& gu) {
  return routed[0].dtype == stats_dtype(gu.dtype) && routed[0].shape.rank() == 2 &&
         is_type(routed[1], DType::kI32, {gu.shape[0]}) && is_index(routed[2], 1) && routed[2].shape[0] > 0;
}

constexpr i64 kWidths[] = {5, 1, 1032, 3, 37};  // of the five routings

std::size_t at(i64 row, i64 width, i64 column) { return static_cast<std::size_t>(row * width + column); }

// Calls element(route, row, gate's index in gu, that of the activation) for every route and column.
template <class Element>
void for_each_element(const Routing& routing, i64 f, const Element& element) {
  for (std::size_t route = 0; route < routing.row_of_route.size(); ++route) {
    const i64 row = static_cast<i64>(routing.row_of_route[route]);
    for (i64 j = 0; j < f; ++j) {
      element(route, at(row, 2 * f, j), at(row, f, j));
    }
  }
}

ir::CaseInput weights_input(const Routing& routing, DType dtype) {
  return {{stats_dtype(dtype), {routing.tokens, routing.k}}, {}};
}

ir::OpCase moe_swiglu_case(DType dtype, const Routing& routing, i64 f) {
  ir::OpCase example;
  example.label = routing.label;
  example.op = std::make_shared<MoeSwiglu>();
  example.inputs = {routing.rows_input(dtype, 2 * f), weights_input(routing, dtype),
                    routing.route_of_row_input(), routing.offsets_input()};
  example.oracle = [routing, f](const ir::Values& in) {
    std::vector<double> h(at(routing.capacity, f, 0));
    for_each_element(routing, f, [&](std::size_t route, std::size_t gate, std::size_t to) {
      h[to] = in[1][route] * in[0][gate] / (1 + std::exp(-in[0][gate])) *
              in[0][gate + static_cast<std::size_t>(f)];
    });
    return ir::Values{h};
  };
  example.defined = [used = routing.used_rows() * f](int, i64 element, const ir::Values&) {
    return element < used;
  };
  example.differentiable = {0, 1};
  example.reduction_length = f;  // that of the weights' gradient
  return example;
}

ir::OpCase moe_swiglu_dx_case(DType dtype, const Routing& routing, i64 f) {
  ir::OpCase example;
  example.label = routing.label;
  example.op = std::make_shared<MoeSwigluDx>();
  example.inputs = {routing.rows_input(dtype, f), routing.rows_input(dtype, 2 * f),
                    weights_input(routing, dtype), routing.route_of_row_input(), routing.offsets_input()};
  example.oracle = [routing, f](const ir::Values& in) {
    ir::Values out = {std::vector<double>(at(routing.capacity, 2 * f, 0)),
                      std::vector<double>(in[2].size(), 0.0)};
    for_each_element(routing, f, [&](std::size_t route, std::size_t gate, std::size_t a) {
      const std::size_t up = gate + static_cast<std::size_t>(f);
      const double g = in[1][gate];
      const double s = 1 / (1 + std::exp(-g));
      out[0][gate] = in[0][a] * in[2][route] * in[1][up] * (s + g * s * (1 - s));
      out[0][up] = in[0][a] * in[2][route] * g * s;
      out[1][route] += in[0][a] * g * s * in[1][up];
    });
    return out;
  };
  example.defined = [used = routing.used_rows() * 2 * f](int output, i64 element, const ir::Values&) {
    return output == 1 || element < used;
  };
  example.reduction_length = f;
  return example;
}

template <ir::OpCase (*kCase)(DType, const Routing&, i64)>
std::vector<ir::OpCase> cases(DType dtype) {
  std::vector<ir::OpCase> result;
  std::size_t index = 0;
  for (const Routing& routing : routing_examples()) {
    result.push_back(kCase(dtype, routing, kWidths[index++]));
  }
  return result;
}

}  // namespace

Expected<std::vector<ir::TensorType>> MoeSwiglu::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 4 || !is_activation(inputs[0], 2) || inputs[0].shape[1] % 2 != 0 ||
      !are_routed(inputs.subspan(1), inputs[0])) {
    return ir::shape_error(
        fmt::format("needs gu A[C,2f], weights S[T,k], route_of_row i32[C] and offsets i32[E+1], {}",
                    kTypesText),
        inputs);
  }
  return std::vector<ir::TensorType>{{inputs[0].dtype, {inputs[0].shape[0], inputs[0].shape[1] / 2}}};
}

std::vector<ir::ValueId> MoeSwiglu::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                        std::span<const ir::ValueId> cotangents) const {
  const std::vector<ir::ValueId> gradients =
      builder.add(std::make_shared<MoeSwigluDx>(),
                  {cotangents[0], node.inputs[0], node.inputs[1], node.inputs[2], node.inputs[3]});
  return {gradients[0], gradients[1], ir::kNoValue, ir::kNoValue};
}

void MoeSwiglu::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) { activate<T>(context); });
}

Expected<std::vector<ir::TensorType>> MoeSwigluDx::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 5 || !is_activation(inputs[0], 2) ||
      !is_type(inputs[1], inputs[0].dtype, {inputs[0].shape[0], 2 * inputs[0].shape[1]}) ||
      !are_routed(inputs.subspan(2), inputs[1])) {
    return ir::shape_error(
        fmt::format(
            "needs dh A[C,f], gu A[C,2f], weights S[T,k], route_of_row i32[C] and offsets i32[E+1], {}",
            kTypesText),
        inputs);
  }
  return std::vector<ir::TensorType>{inputs[1], inputs[2]};
}

std::vector<ir::Alias> MoeSwigluDx::aliases() const { return {{1, 0, ir::AliasKind::kMay}}; }

void MoeSwigluDx::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) { activate_dx<T>(context); });
}

ir::ValueId moe_swiglu(ir::Builder& builder, ir::ValueId gu, ir::ValueId weights,
                       const Placement& placement) {
  return builder.add_one(std::make_shared<MoeSwiglu>(),
                         {gu, weights, placement.route_of_row, placement.offsets});
}

void register_moe_swiglu(ir::Registry& registry) {
  registry.add("moe_swiglu", cases<moe_swiglu_case>);
  registry.add("moe_swiglu_dx", cases<moe_swiglu_dx_case>);
}

}  // namespace wych::ops
