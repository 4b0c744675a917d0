#include "ops/matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

// Rows of op(x): the extent that is not summed over when x is the left factor.
i64 op_rows(const ir::Shape& shape, bool trans) { return shape[trans ? -1 : -2]; }
i64 op_columns(const ir::Shape& shape, bool trans) { return shape[trans ? -2 : -1]; }

}  // namespace

void Matmul::visit_attributes(ir::AttributeVisitor& visitor) const {
  visitor.visit("trans_a", i64{trans_a_});
  visitor.visit("trans_b", i64{trans_b_});
}

Expected<std::vector<ir::TensorType>> Matmul::infer(std::span<const ir::TensorType> inputs) const {
  bool right = inputs.size() == 2 && is_compute(inputs[0].dtype) && inputs[0].dtype == inputs[1].dtype;
  if (right) {
    const int rank = inputs[0].shape.rank();
    right = (rank == 2 || rank == 3) && inputs[1].shape.rank() == rank &&
            (rank == 2 || inputs[0].shape[0] == inputs[1].shape[0]) &&
            op_columns(inputs[0].shape, trans_a_) == op_rows(inputs[1].shape, trans_b_);
  }
  if (!right) {
    return ir::shape_error(fmt::format("needs a {} and b {} of one type, f32 or f64, both with an equal "
                                       "leading batch extent or without one",
                                       trans_a_ ? "[k,m]" : "[m,k]", trans_b_ ? "[n,k]" : "[k,n]"),
                           inputs);
  }
  std::vector<i64> extents(inputs[0].shape.dims().begin(), inputs[0].shape.dims().end());
  extents[extents.size() - 2] = op_rows(inputs[0].shape, trans_a_);
  extents[extents.size() - 1] = op_columns(inputs[1].shape, trans_b_);
  return std::vector<ir::TensorType>{{inputs[0].dtype, ir::Shape(extents)}};
}

std::vector<ir::ValueId> Matmul::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                     std::span<const ir::ValueId> cotangents) const {
  const ir::ValueId a = node.inputs[0];
  const ir::ValueId b = node.inputs[1];
  const ir::ValueId dy = cotangents[0];
  return {trans_a_ ? matmul(builder, b, dy, trans_b_, true) : matmul(builder, dy, b, false, !trans_b_),
          trans_b_ ? matmul(builder, dy, a, true, trans_a_) : matmul(builder, a, dy, !trans_a_, false)};
}

ir::Cost Matmul::cost(std::span<const ir::TensorType> inputs, std::span<const ir::TensorType> outputs) const {
  ir::Cost cost = Op::cost(inputs, outputs);
  cost.flops = 2.0 * static_cast<double>(outputs[0].elements()) *
               static_cast<double>(op_columns(inputs[0].shape, trans_a_));
  return cost;
}

void Matmul::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.output(0).type->dtype, [&]<class T>(T) {
    const ir::Shape& shape_a = context.input(0).type->shape;
    const ir::Shape& shape_b = context.input(1).type->shape;
    const i64 m = op_rows(shape_a, trans_a_);
    const i64 k = op_columns(shape_a, trans_a_);
    const i64 n = op_columns(shape_b, trans_b_);
    const i64 num_batches = shape_a.rank() == 3 ? shape_a[0] : 1;
    for (i64 batch = 0; batch < num_batches; ++batch) {
      const T* a = context.input(0).as<T>() + batch * m * k;
      const T* b = context.input(1).as<T>() + batch * k * n;
      T* y = context.output(0).as<T>() + batch * m * n;
      for (i64 i = 0; i < m; ++i) {
        for (i64 j = 0; j < n; ++j) {
          T sum{0};
          for (i64 l = 0; l < k; ++l) {
            sum += a[trans_a_ ? l * m + i : i * k + l] * b[trans_b_ ? j * k + l : l * n + j];
          }
          y[i * n + j] = sum;
        }
      }
    }
  });
}

ir::ValueId matmul(ir::Builder& builder, ir::ValueId a, ir::ValueId b, bool trans_a, bool trans_b) {
  return builder.add_one(std::make_shared<Matmul>(trans_a, trans_b), {a, b});
}

namespace {

struct Extents {
  i64 batch = 0;  // 0: no batch axis
  i64 m = 1;
  i64 n = 1;
  i64 k = 1;
};

ir::TensorType matrix(DType dtype, i64 batch, i64 rows, i64 columns) {
  return batch == 0 ? ir::TensorType{dtype, {rows, columns}} : ir::TensorType{dtype, {batch, rows, columns}};
}

// By outer products, over strides that the case names.
ir::Values expected(const ir::Values& inputs, const Extents& e, bool trans_a, bool trans_b) {
  const i64 num_batches = std::max<i64>(1, e.batch);
  std::vector<double> result(static_cast<std::size_t>(num_batches * e.m * e.n));
  const i64 row_a = trans_a ? 1 : e.k;
  const i64 sum_a = trans_a ? e.m : 1;
  const i64 sum_b = trans_b ? 1 : e.n;
  const i64 column_b = trans_b ? e.k : 1;
  for (i64 batch = 0; batch < num_batches; ++batch) {
    for (i64 l = 0; l < e.k; ++l) {
      for (i64 i = 0; i < e.m; ++i) {
        for (i64 j = 0; j < e.n; ++j) {
          result[static_cast<std::size_t>((batch * e.m + i) * e.n + j)] +=
              inputs[0][static_cast<std::size_t>(batch * e.m * e.k + i * row_a + l * sum_a)] *
              inputs[1][static_cast<std::size_t>(batch * e.k * e.n + l * sum_b + j * column_b)];
        }
      }
    }
  }
  return {result};
}

ir::OpCase matmul_case(DType dtype, const Extents& e, bool trans_a, bool trans_b) {
  ir::OpCase example;
  example.label =
      fmt::format("batch {} {}x{}x{} {}{}", e.batch, e.m, e.n, e.k, trans_a ? "T" : "N", trans_b ? "T" : "N");
  example.op = std::make_shared<Matmul>(trans_a, trans_b);
  example.inputs = {{trans_a ? matrix(dtype, e.batch, e.k, e.m) : matrix(dtype, e.batch, e.m, e.k)},
                    {trans_b ? matrix(dtype, e.batch, e.n, e.k) : matrix(dtype, e.batch, e.k, e.n)}};
  example.oracle = [=](const ir::Values& inputs) { return expected(inputs, e, trans_a, trans_b); };
  example.differentiable = {0, 1};
  example.reduction_length = std::max<i64>(1, e.k);
  return example;
}

std::vector<ir::OpCase> matmul_cases(DType dtype) {
  std::vector<ir::OpCase> cases;
  for (const bool trans_a : {false, true}) {
    for (const bool trans_b : {false, true}) {
      cases.push_back(matmul_case(dtype, {.m = 3, .n = 5, .k = 7}, trans_a, trans_b));
      cases.push_back(matmul_case(dtype, {.batch = 3, .m = 2, .n = 1, .k = 5}, trans_a, trans_b));
    }
  }
  cases.push_back(matmul_case(dtype, {}, false, false));
  cases.push_back(matmul_case(dtype, {.m = 2, .n = 3, .k = 0}, false, false));
  return cases;
}

}  // namespace

void register_matmul(ir::Registry& registry) { registry.add("matmul", matmul_cases); }

}  // namespace wych::ops
