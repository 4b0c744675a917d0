#include "ops/qk_norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/rms_rows.h"
#include "ops/row_chunks.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

// Calls row(first column, columns, is query, index among the token's rstd) for every normalised row.
template <class F>
void for_each_row(const QkNormShape& shape, const F& row) {
  for (i64 h = 0; h < shape.query_rows(); ++h) {
    row(h * shape.query_columns(), shape.query_columns(), true, h);
  }
  for (i64 h = 0; h < shape.key_rows(); ++h) {
    row(shape.layout.key_column() + h * shape.key_columns(), shape.key_columns(), false,
        shape.query_rows() + h);
  }
}

template <class T>
void copy_values(const HeadLayout& layout, const T* from, T* to) {
  if (from != to) {
    std::copy_n(from + layout.value_column(), layout.kv_width(), to + layout.value_column());
  }
}

template <class T>
void normalise(const ir::ExecContext& context, const QkNormShape& shape, double eps) {
  const i64 width = shape.layout.width();
  const i64 rows = shape.query_rows() + shape.key_rows();
  const T* qkv = context.input(0).as<T>();
  const T* q_weight = context.input(1).as<T>();
  const T* k_weight = context.input(2).as<T>();
  T* y = context.output(0).as<T>();
  T* rstd = context.output(1).as<T>();
  context.pool->parallel_chunks(context.input(0).dim(0), rows_per_chunk(width), [&](i64 begin, i64 end) {
    for (i64 t = begin; t < end; ++t) {
      const T* from = qkv + t * width;
      T* to = y + t * width;
      for_each_row(shape, [&](i64 first, i64 columns, bool is_query, i64 index) {
        T& factor = rstd[t * rows + index];
        factor = kernels::rms_rstd(from + first, columns, eps);
        kernels::rms_apply(from + first, is_query ? q_weight : k_weight, factor, columns, to + first);
      });
      copy_values(shape.layout, from, to);
    }
  });
}

template <class T>
void normalise_dx(const ir::ExecContext& context, const QkNormShape& shape) {
  const i64 width = shape.layout.width();
  const i64 rows = shape.query_rows() + shape.key_rows();
  const T* dy = context.input(0).as<T>();
  const T* qkv = context.input(1).as<T>();
  const T* q_weight = context.input(2).as<T>();
  const T* k_weight = context.input(3).as<T>();
  const T* rstd = context.input(4).as<T>();
  T* dqkv = context.output(0).as<T>();
  context.pool->parallel_chunks(context.input(0).dim(0), rows_per_chunk(width), [&](i64 begin, i64 end) {
    for (i64 t = begin; t < end; ++t) {
      for_each_row(shape, [&](i64 first, i64 columns, bool is_query, i64 index) {
        const i64 at = t * width + first;
        kernels::rms_dx(dy + at, qkv + at, is_query ? q_weight : k_weight, rstd[t * rows + index], columns,
                        dqkv + at);
      });
      copy_values(shape.layout, dy + t * width, dqkv + t * width);
    }
  });
}

template <class T>
void normalise_dw(const ir::ExecContext& context, const QkNormShape& shape, bool is_query_part) {
  const i64 width = shape.layout.width();
  const i64 rows = shape.query_rows() + shape.key_rows();
  const T* dy = context.input(0).as<T>();
  const T* qkv = context.input(1).as<T>();
  const T* rstd = context.input(2).as<T>();
  kernels::rms_sum_rows(
      *context.pool, context.input(0).dim(0), context.output(0).dim(0), context.accumulate,
      reinterpret_cast<T*>(context.workspace), context.output(0).as<T>(), [&](i64 t, T* sum) {
        for_each_row(shape, [&](i64 first, i64 columns, bool is_query, i64 index) {
          if (is_query == is_query_part) {
            const i64 at = t * width + first;
            kernels::rms_add_dweight(dy + at, qkv + at, rstd[t * rows + index], columns, sum);
          }
        });
      });
}

void visit_shape(const QkNormShape& shape, ir::AttributeVisitor& visitor) {
  shape.layout.visit(visitor);
  visitor.visit("per_head", i64{shape.per_head});
}

bool is_qkv(const ir::TensorType& type, const HeadLayout& layout) {
  return is_compute(type, 2) && type.shape[1] == layout.width();
}

ir::TensorType rstd_type(const ir::TensorType& qkv, const QkNormShape& shape) {
  return {qkv.dtype, {qkv.shape[0], shape.query_rows() + shape.key_rows()}};
}

bool are_weights(std::span<const ir::TensorType> weights, DType dtype, const QkNormShape& shape) {
  return is_type(weights[0], dtype, {shape.query_columns()}) &&
         is_type(weights[1], dtype, {shape.key_columns()});
}

// Cases. The oracles go over heads and columns by index, with the row of a column found by division.
struct Example {
  i64 tokens;
  QkNormShape shape;
  double eps = 1e-5;

  [[nodiscard]] i64 width() const { return shape.layout.width(); }
  [[nodiscard]] i64 rows() const { return shape.query_rows() + shape.key_rows(); }
  [[nodiscard]] std::string label() const {
    return fmt::format("T={} hq={} hkv={} hd={} {}", tokens, shape.layout.query_heads, shape.layout.kv_heads,
                       shape.layout.head_dim, shape.per_head ? "per head" : "full");
  }
  // The index in rstd and in its weight of a query or key column.
  [[nodiscard]] i64 row_of(i64 column) const {
    const i64 key = column - shape.layout.query_width();
    return key < 0 ? column / shape.query_columns() : shape.query_rows() + key / shape.key_columns();
  }
  [[nodiscard]] i64 place_of(i64 column) const {
    const i64 key = column - shape.layout.query_width();
    return key < 0 ? column % shape.query_columns() : key % shape.key_columns();
  }
  [[nodiscard]] bool is_query(i64 column) const { return column < shape.layout.query_width(); }
  [[nodiscard]] bool is_value(i64 column) const { return column >= shape.layout.value_column(); }
  [[nodiscard]] double columns_of(i64 column) const {
    return static_cast<double>(is_query(column) ? shape.query_columns() : shape.key_columns());
  }
  [[nodiscard]] ir::CaseInput qkv(DType dtype) const { return {{dtype, {tokens, width()}}}; }
  [[nodiscard]] ir::CaseInput weight(DType dtype, i64 columns) const {
    return {{dtype, {columns}}, {}, 0.5, 1.5};
  }
};

std::size_t at(i64 row, i64 width, i64 column) { return static_cast<std::size_t>(row * width + column); }

ir::OpCase qk_norm_case(DType dtype, const Example& e) {
  ir::OpCase example;
  example.label = e.label();
  example.op = std::make_shared<QkNorm>(e.shape, e.eps);
  example.inputs = {e.qkv(dtype), e.weight(dtype, e.shape.query_columns()),
                    e.weight(dtype, e.shape.key_columns())};
  example.oracle = [e](const ir::Values& in) {
    ir::Values out = {in[0], std::vector<double>(at(e.tokens, e.rows(), 0), 0.0)};
    for (i64 t = 0; t < e.tokens; ++t) {
      for (i64 c = 0; c < e.shape.layout.value_column(); ++c) {
        const double x = in[0][at(t, e.width(), c)];
        out[1][at(t, e.rows(), e.row_of(c))] += x * x / e.columns_of(c);
      }
    }
    for (double& value : out[1]) {
      value = 1 / std::sqrt(value + e.eps);
    }
    for (i64 t = 0; t < e.tokens; ++t) {
      for (i64 c = 0; c < e.shape.layout.value_column(); ++c) {
        const std::vector<double>& weight = in[e.is_query(c) ? 1 : 2];
        out[0][at(t, e.width(), c)] *=
            out[1][at(t, e.rows(), e.row_of(c))] * weight[static_cast<std::size_t>(e.place_of(c))];
      }
    }
    return out;
  };
  example.differentiable = {0, 1, 2};
  example.gradient_outputs = {0};
  example.reduction_length = std::max(e.shape.query_columns(), e.shape.key_columns());
  return example;
}

ir::OpCase qk_norm_dx_case(DType dtype, const Example& e) {
  ir::OpCase example;
  example.label = e.label();
  example.op = std::make_shared<QkNormDx>(e.shape);
  example.inputs = {e.qkv(dtype),
                    e.qkv(dtype),
                    e.weight(dtype, e.shape.query_columns()),
                    e.weight(dtype, e.shape.key_columns()),
                    {{dtype, {e.tokens, e.rows()}}, {}, 0.5, 1.5}};
  example.oracle = [e](const ir::Values& in) {
    ir::Values out = {in[0]};
    std::vector<double> means(in[4].size(), 0.0);
    const auto g = [&](i64 t, i64 c) {
      return in[0][at(t, e.width(), c)] * in[e.is_query(c) ? 2 : 3][static_cast<std::size_t>(e.place_of(c))];
    };
    const auto xhat = [&](i64 t, i64 c) {
      return in[1][at(t, e.width(), c)] * in[4][at(t, e.rows(), e.row_of(c))];
    };
    for (i64 t = 0; t < e.tokens; ++t) {
      for (i64 c = 0; c < e.shape.layout.value_column(); ++c) {
        means[at(t, e.rows(), e.row_of(c))] += g(t, c) * xhat(t, c) / e.columns_of(c);
      }
      for (i64 c = 0; c < e.shape.layout.value_column(); ++c) {
        const std::size_t row = at(t, e.rows(), e.row_of(c));
        out[0][at(t, e.width(), c)] = in[4][row] * (g(t, c) - xhat(t, c) * means[row]);
      }
    }
    return out;
  };
  example.reduction_length = std::max(e.shape.query_columns(), e.shape.key_columns());
  return example;
}

ir::OpCase qk_norm_dw_case(DType dtype, const Example& e, QkPart part) {
  ir::OpCase example;
  const bool is_query = part == QkPart::kQuery;
  const i64 columns = is_query ? e.shape.query_columns() : e.shape.key_columns();
  example.label = e.label() + (is_query ? " q" : " k");
  example.op = std::make_shared<QkNormDw>(e.shape, part);
  example.inputs = {e.qkv(dtype), e.qkv(dtype), {{dtype, {e.tokens, e.rows()}}, {}, 0.5, 1.5}};
  example.oracle = [e, columns, is_query](const ir::Values& in) {
    ir::Values out(1, std::vector<double>(static_cast<std::size_t>(columns), 0.0));
    for (i64 t = 0; t < e.tokens; ++t) {
      for (i64 c = 0; c < e.shape.layout.value_column(); ++c) {
        if (e.is_query(c) == is_query) {
          out[0][static_cast<std::size_t>(e.place_of(c))] +=
              in[0][at(t, e.width(), c)] * in[1][at(t, e.width(), c)] * in[2][at(t, e.rows(), e.row_of(c))];
        }
      }
    }
    return out;
  };
  example.reduction_length = e.tokens * std::max(e.shape.layout.query_heads, e.shape.layout.kv_heads);
  return example;
}

std::vector<Example> examples() {
  return {{7, {{3, 1, 5}, false}},   {1, {{1, 1, 1}, true}},   {5, {{4, 2, 3}, true}},
          {67, {{2, 2, 37}, false}}, {131, {{6, 3, 8}, true}}, {3, {{5, 1, 131}, false}}};
}

template <class F>
std::vector<ir::OpCase> cases(const F& make) {
  std::vector<ir::OpCase> result;
  for (const Example& example : examples()) {
    result.push_back(make(example));
  }
  return result;
}

}  // namespace

void QkNorm::visit_attributes(ir::AttributeVisitor& visitor) const {
  visit_shape(shape_, visitor);
  visitor.visit("eps", eps_);
}

Expected<std::vector<ir::TensorType>> QkNorm::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 3 || !is_qkv(inputs[0], shape_.layout) ||
      !are_weights(inputs.subspan(1), inputs[0].dtype, shape_)) {
    return ir::shape_error(fmt::format("needs qkv F[T,{}], q_weight F[{}] and k_weight F[{}], F = f32 or f64",
                                       shape_.layout.width(), shape_.query_columns(), shape_.key_columns()),
                           inputs);
  }
  return std::vector<ir::TensorType>{inputs[0], rstd_type(inputs[0], shape_)};
}

std::vector<ir::ValueId> QkNorm::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                     std::span<const ir::ValueId> cotangents) const {
  WYCH_CHECK(cotangents[1] == ir::kNoValue, "qk_norm has no gradient through rstd");
  const ir::ValueId dy = cotangents[0];
  const ir::ValueId qkv = node.inputs[0];
  const ir::ValueId rstd = node.outputs[1];
  return {
      builder.add_one(std::make_shared<QkNormDx>(shape_), {dy, qkv, node.inputs[1], node.inputs[2], rstd}),
      builder.add_one(std::make_shared<QkNormDw>(shape_, QkPart::kQuery), {dy, qkv, rstd}),
      builder.add_one(std::make_shared<QkNormDw>(shape_, QkPart::kKey), {dy, qkv, rstd})};
}

std::vector<ir::Alias> QkNorm::aliases() const { return {{0, 0, ir::AliasKind::kMay}}; }

void QkNorm::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) { normalise<T>(context, shape_, eps_); });
}

void QkNormDx::visit_attributes(ir::AttributeVisitor& visitor) const { visit_shape(shape_, visitor); }

Expected<std::vector<ir::TensorType>> QkNormDx::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 5 || !is_qkv(inputs[0], shape_.layout) || inputs[1] != inputs[0] ||
      !are_weights(inputs.subspan(2), inputs[0].dtype, shape_) || inputs[4] != rstd_type(inputs[0], shape_)) {
    return ir::shape_error(
        fmt::format(
            "needs dy and qkv F[T,{}], q_weight F[{}], k_weight F[{}] and rstd F[T,{}], F = f32 or f64",
            shape_.layout.width(), shape_.query_columns(), shape_.key_columns(),
            shape_.query_rows() + shape_.key_rows()),
        inputs);
  }
  return std::vector<ir::TensorType>{inputs[0]};
}

std::vector<ir::Alias> QkNormDx::aliases() const { return {{0, 0, ir::AliasKind::kMay}}; }

void QkNormDx::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) { normalise_dx<T>(context, shape_); });
}

void QkNormDw::visit_attributes(ir::AttributeVisitor& visitor) const {
  visit_shape(shape_, visitor);
  visitor.visit("part", std::string_view(part_ == QkPart::kQuery ? "q" : "k"));
}

Expected<std::vector<ir::TensorType>> QkNormDw::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 3 || !is_qkv(inputs[0], shape_.layout) || inputs[1] != inputs[0] ||
      inputs[2] != rstd_type(inputs[0], shape_)) {
    return ir::shape_error(fmt::format("needs dy and qkv F[T,{}] and rstd F[T,{}], F = f32 or f64",
                                       shape_.layout.width(), shape_.query_rows() + shape_.key_rows()),
                           inputs);
  }
  const i64 columns = part_ == QkPart::kQuery ? shape_.query_columns() : shape_.key_columns();
  return std::vector<ir::TensorType>{{inputs[0].dtype, {columns}}};
}

i64 QkNormDw::workspace(std::span<const ir::TensorType> inputs,
                        std::span<const ir::TensorType> outputs) const {
  return kernels::rms_num_shares(inputs[0].shape[0]) * outputs[0].bytes();
}

i64 QkNormDw::cuda_workspace(std::span<const ir::TensorType> inputs, std::span<const ir::TensorType> outputs,
                             const CudaTarget& /*target*/) const {
  return cuda_chunks(inputs[0].shape[0]) * outputs[0].bytes();
}

void QkNormDw::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype,
                 [&]<class T>(T) { normalise_dw<T>(context, shape_, part_ == QkPart::kQuery); });
}

ir::ValueId qk_norm(ir::Builder& builder, ir::ValueId qkv, ir::ValueId q_weight, ir::ValueId k_weight,
                    const QkNormShape& shape, double eps) {
  return builder.add(std::make_shared<QkNorm>(shape, eps), {qkv, q_weight, k_weight})[0];
}

void register_qk_norm(ir::Registry& registry) {
  registry.add("qk_norm", [](DType dtype) {
    return cases([=](const Example& example) { return qk_norm_case(dtype, example); });
  });
  registry.add("qk_norm_dx", [](DType dtype) {
    return cases([=](const Example& example) { return qk_norm_dx_case(dtype, example); });
  });
  registry.add("qk_norm_dw", [](DType dtype) {
    std::vector<ir::OpCase> result =
        cases([=](const Example& example) { return qk_norm_dw_case(dtype, example, QkPart::kQuery); });
    std::vector<ir::OpCase> keys =
        cases([=](const Example& example) { return qk_norm_dw_case(dtype, example, QkPart::kKey); });
    result.insert(result.end(), keys.begin(), keys.end());
    return result;
  });
}

}  // namespace wych::ops
