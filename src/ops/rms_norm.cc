#include "ops/rms_norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/rms_rows.h"
#include "ops/row_chunks.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

template <class T>
void normalise(const ir::ExecContext& context, double eps) {
  const i64 width = context.input(0).dim(1);
  const T* x = context.input(0).as<T>();
  const T* weight = context.input(1).as<T>();
  T* y = context.output(0).as<T>();
  T* rstd = context.output(1).as<T>();
  context.pool->parallel_chunks(context.input(0).dim(0), rows_per_chunk(width), [&](i64 begin, i64 end) {
    for (i64 r = begin; r < end; ++r) {
      rstd[r] = kernels::rms_rstd(x + r * width, width, eps);
      kernels::rms_apply(x + r * width, weight, rstd[r], width, y + r * width);
    }
  });
}

template <class T>
void add_and_normalise(const ir::ExecContext& context, double eps) {
  const i64 width = context.input(0).dim(1);
  const T* a = context.input(0).as<T>();
  const T* b = context.input(1).as<T>();
  const T* weight = context.input(2).as<T>();
  T* x = context.output(0).as<T>();
  T* y = context.output(1).as<T>();
  T* rstd = context.output(2).as<T>();
  context.pool->parallel_chunks(context.input(0).dim(0), rows_per_chunk(width), [&](i64 begin, i64 end) {
    for (i64 r = begin; r < end; ++r) {
      const i64 first = r * width;
#pragma GCC ivdep
      for (i64 j = first; j < first + width; ++j) {
        x[j] = a[j] + b[j];
      }
      rstd[r] = kernels::rms_rstd(x + first, width, eps);
      kernels::rms_apply(x + first, weight, rstd[r], width, y + first);
    }
  });
}

// The weight's gradient of a row comes first: dx may overwrite what it reads.
template <class T>
void normalise_backward(const ir::ExecContext& context, bool passing) {
  const i64 width = context.input(0).dim(1);
  const T* dy = context.input(0).as<T>();
  const T* x = context.input(1).as<T>();
  const T* weight = context.input(2).as<T>();
  const T* rstd = context.input(3).as<T>();
  const T* also = passing ? context.input(4).as<T>() : nullptr;
  T* dx = context.output(0).as<T>();
  kernels::rms_sum_rows(
      *context.pool, context.input(0).dim(0), width, context.accumulate,
      reinterpret_cast<T*>(context.workspace), context.output(1).as<T>(), [&](i64 r, T* sum) {
        const i64 at = r * width;
        kernels::rms_add_dweight(dy + at, x + at, rstd[r], width, sum);
        kernels::rms_dx(dy + at, x + at, weight, rstd[r], width, dx + at, passing ? also + at : nullptr);
      });
}

std::size_t at(i64 row, i64 width, i64 column) { return static_cast<std::size_t>(row * width + column); }

std::vector<double> oracle_rstd(const std::vector<double>& x, i64 rows, i64 width, double eps) {
  std::vector<double> rstd;
  for (i64 r = 0; r < rows; ++r) {
    double sum = 0;
    for (i64 j = 0; j < width; ++j) {
      sum += x[at(r, width, j)] * x[at(r, width, j)];
    }
    rstd.push_back(1.0 / std::sqrt(sum / static_cast<double>(width) + eps));
  }
  return rstd;
}

// y and rstd of x, in double.
ir::Values oracle(const std::vector<double>& x, const std::vector<double>& weight, i64 rows, i64 width,
                  double eps) {
  ir::Values out = {x, oracle_rstd(x, rows, width, eps)};
  for (i64 r = 0; r < rows; ++r) {
    for (i64 j = 0; j < width; ++j) {
      out[0][at(r, width, j)] *= out[1][static_cast<std::size_t>(r)] * weight[static_cast<std::size_t>(j)];
    }
  }
  return out;
}

ir::OpCase rms_norm_case(DType dtype, i64 rows, i64 width, double eps) {
  ir::OpCase example;
  example.label = fmt::format("R={} d={} eps={}", rows, width, eps);
  example.op = std::make_shared<RmsNorm>(eps);
  example.inputs = {{{dtype, {rows, width}}}, {{stats_dtype(dtype), {width}}, {}, 0.5, 1.5}};
  example.oracle = [=](const ir::Values& in) { return oracle(in[0], in[1], rows, width, eps); };
  example.differentiable = {0, 1};
  example.gradient_outputs = {0};
  example.reduction_length = width;
  return example;
}

ir::OpCase add_rms_norm_case(DType dtype, i64 rows, i64 width, double eps) {
  ir::OpCase example = rms_norm_case(dtype, rows, width, eps);
  example.op = std::make_shared<AddRmsNorm>(eps);
  example.inputs.insert(example.inputs.begin(), example.inputs[0]);
  example.oracle = [=](const ir::Values& in) {
    std::vector<double> x = in[0];
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] += in[1][i];
    }
    const ir::Values normed = oracle(x, in[2], rows, width, eps);
    return ir::Values{x, normed[0], normed[1]};
  };
  example.differentiable = {0, 1, 2};
  example.gradient_outputs = {0, 1};
  return example;
}

// rstd is an input like any other here: the oracle uses the given one.
ir::OpCase backward_case(DType dtype, i64 rows, i64 width, bool passing) {
  ir::OpCase example;
  example.label = fmt::format("R={} d={}", rows, width);
  example.op = std::make_shared<RmsNormBackward>(passing);
  example.inputs = {{{dtype, {rows, width}}},
                    {{dtype, {rows, width}}},
                    {{stats_dtype(dtype), {width}}, {}, 0.5, 1.5},
                    {{stats_dtype(dtype), {rows}}, {}, 0.5, 1.5}};
  if (passing) {
    example.inputs.push_back(example.inputs[0]);
  }
  example.oracle = [=](const ir::Values& in) {
    ir::Values out(2);
    out[1].resize(static_cast<std::size_t>(width));
    for (i64 r = 0; r < rows; ++r) {
      const double rstd = in[3][static_cast<std::size_t>(r)];
      double mean = 0;
      for (i64 j = 0; j < width; ++j) {
        const double xhat = in[1][at(r, width, j)] * rstd;
        mean += in[0][at(r, width, j)] * in[2][static_cast<std::size_t>(j)] * xhat;
        out[1][static_cast<std::size_t>(j)] += in[0][at(r, width, j)] * xhat;
      }
      mean /= static_cast<double>(width);
      for (i64 j = 0; j < width; ++j) {
        const double g = in[0][at(r, width, j)] * in[2][static_cast<std::size_t>(j)];
        out[0].push_back(rstd * (g - in[1][at(r, width, j)] * rstd * mean) +
                         (passing ? in[4][at(r, width, j)] : 0.0));
      }
    }
    return out;
  };
  example.reduction_length = std::max(width, rows);
  return example;
}

template <class Make>
std::vector<ir::OpCase> backward_cases(const Make& make) {
  return {make(7, 5), make(1, 1), make(131, 67), make(197, 264), make(3, 2312)};
}

}  // namespace

void RmsNorm::visit_attributes(ir::AttributeVisitor& visitor) const { visitor.visit("eps", eps_); }

Expected<std::vector<ir::TensorType>> RmsNorm::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 2 || !is_activation(inputs[0], 2) ||
      !is_type(inputs[1], stats_dtype(inputs[0].dtype), {inputs[0].shape[1]})) {
    return ir::shape_error(fmt::format("needs x A[R,d] and weight S[d], {}", kTypesText), inputs);
  }
  return std::vector<ir::TensorType>{inputs[0], {stats_dtype(inputs[0].dtype), {inputs[0].shape[0]}}};
}

std::vector<ir::ValueId> RmsNorm::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                      std::span<const ir::ValueId> cotangents) const {
  WYCH_CHECK(cotangents[1] == ir::kNoValue, "rms_norm has no gradient through rstd");
  return builder.add(std::make_shared<RmsNormBackward>(false),
                     {cotangents[0], node.inputs[0], node.inputs[1], node.outputs[1]});
}

std::vector<ir::Alias> RmsNorm::aliases() const { return {{0, 0, ir::AliasKind::kMay}}; }

void RmsNorm::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) { normalise<T>(context, eps_); });
}

void AddRmsNorm::visit_attributes(ir::AttributeVisitor& visitor) const { visitor.visit("eps", eps_); }

Expected<std::vector<ir::TensorType>> AddRmsNorm::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 3 || !is_activation(inputs[0], 2) || inputs[1] != inputs[0] ||
      !is_type(inputs[2], stats_dtype(inputs[0].dtype), {inputs[0].shape[1]})) {
    return ir::shape_error(fmt::format("needs a A[R,d], b A[R,d] and weight S[d], {}", kTypesText), inputs);
  }
  return std::vector<ir::TensorType>{
      inputs[0], inputs[0], {stats_dtype(inputs[0].dtype), {inputs[0].shape[0]}}};
}

std::vector<ir::ValueId> AddRmsNorm::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                         std::span<const ir::ValueId> cotangents) const {
  WYCH_CHECK(cotangents[2] == ir::kNoValue, "add_rms_norm has no gradient through rstd");
  if (cotangents[1] == ir::kNoValue) {
    return {cotangents[0], cotangents[0], ir::kNoValue};
  }
  const bool passing = cotangents[0] != ir::kNoValue;
  std::vector<ir::ValueId> inputs = {cotangents[1], node.outputs[0], node.inputs[2], node.outputs[2]};
  if (passing) {
    inputs.push_back(cotangents[0]);
  }
  const std::vector<ir::ValueId> gradients =
      builder.add(std::make_shared<RmsNormBackward>(passing), std::move(inputs));
  return {gradients[0], gradients[0], gradients[1]};
}

std::vector<ir::Alias> AddRmsNorm::aliases() const {
  return {{0, 0, ir::AliasKind::kMay}, {1, 0, ir::AliasKind::kMay}, {1, 1, ir::AliasKind::kMay}};
}

void AddRmsNorm::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) { add_and_normalise<T>(context, eps_); });
}

Expected<std::vector<ir::TensorType>> RmsNormBackward::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != (passing_ ? 5 : 4) || !is_activation(inputs[0], 2) || inputs[1] != inputs[0] ||
      !is_type(inputs[2], stats_dtype(inputs[0].dtype), {inputs[0].shape[1]}) ||
      !is_type(inputs[3], stats_dtype(inputs[0].dtype), {inputs[0].shape[0]}) ||
      (passing_ && inputs[4] != inputs[0])) {
    return ir::shape_error(
        fmt::format("needs dy A[R,d], x A[R,d], weight S[d]{} rstd S[R]{}, {}", passing_ ? "," : " and",
                    passing_ ? " and dpassing A[R,d]" : "", kTypesText),
        inputs);
  }
  return std::vector<ir::TensorType>{inputs[0], inputs[2]};
}

std::vector<ir::Alias> RmsNormBackward::aliases() const {
  std::vector<ir::Alias> aliases = {{0, 0, ir::AliasKind::kMay}, {1, 0, ir::AliasKind::kMay}};
  if (passing_) {
    aliases.push_back({4, 0, ir::AliasKind::kMay});
  }
  return aliases;
}

i64 RmsNormBackward::workspace(std::span<const ir::TensorType> inputs,
                               std::span<const ir::TensorType> outputs) const {
  return kernels::rms_num_shares(inputs[0].shape[0]) * outputs[1].bytes();
}

i64 RmsNormBackward::cuda_blocks(i64 rows, const CudaTarget& target) {
  return std::min<i64>(i64{kBlocksPerSm} * target.num_sms, ceil_div(rows, i64{2}));
}

i64 RmsNormBackward::cuda_workspace(std::span<const ir::TensorType> inputs,
                                    std::span<const ir::TensorType> outputs, const CudaTarget& target) const {
  return cuda_blocks(inputs[0].shape[0], target) * outputs[1].bytes();
}

void RmsNormBackward::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) { normalise_backward<T>(context, passing_); });
}

ir::ValueId rms_norm(ir::Builder& builder, ir::ValueId x, ir::ValueId weight, double eps) {
  return builder.add(std::make_shared<RmsNorm>(eps), {x, weight})[0];
}

void register_rms_norm(ir::Registry& registry) {
  registry.add("rms_norm", [](DType dtype) -> std::vector<ir::OpCase> {
    return {rms_norm_case(dtype, 7, 5, 1e-5), rms_norm_case(dtype, 1, 1, 1e-5),
            rms_norm_case(dtype, 3, 128, 1e-6), rms_norm_case(dtype, 131, 67, 1e-6),
            rms_norm_case(dtype, 3, 2312, 1e-6)};
  });
  registry.add("add_rms_norm", [](DType dtype) -> std::vector<ir::OpCase> {
    return {add_rms_norm_case(dtype, 7, 5, 1e-5), add_rms_norm_case(dtype, 1, 1, 1e-5),
            add_rms_norm_case(dtype, 131, 264, 1e-6), add_rms_norm_case(dtype, 3, 2312, 1e-6)};
  });
  registry.add("rms_norm_backward", [](DType dtype) {
    return backward_cases([=](i64 rows, i64 width) { return backward_case(dtype, rows, width, false); });
  });
  registry.add("add_rms_norm_backward", [](DType dtype) {
    return backward_cases([=](i64 rows, i64 width) { return backward_case(dtype, rows, width, true); });
  });
}

}  // namespace wych::ops
