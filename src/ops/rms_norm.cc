#include "ops/rms_norm.h"

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
void normalise_dx(const ir::ExecContext& context) {
  const i64 width = context.input(0).dim(1);
  const T* dy = context.input(0).as<T>();
  const T* x = context.input(1).as<T>();
  const T* weight = context.input(2).as<T>();
  const T* rstd = context.input(3).as<T>();
  T* dx = context.output(0).as<T>();
  context.pool->parallel_chunks(context.input(0).dim(0), rows_per_chunk(width), [&](i64 begin, i64 end) {
    for (i64 r = begin; r < end; ++r) {
      const i64 first = r * width;
      kernels::rms_dx(dy + first, x + first, weight, rstd[r], width, dx + first);
    }
  });
}

template <class T>
void normalise_dw(const ir::ExecContext& context) {
  const i64 width = context.input(0).dim(1);
  const T* dy = context.input(0).as<T>();
  const T* x = context.input(1).as<T>();
  const T* rstd = context.input(2).as<T>();
  kernels::rms_sum_rows(
      *context.pool, context.input(0).dim(0), width, context.accumulate,
      reinterpret_cast<T*>(context.workspace), context.output(0).as<T>(),
      [&](i64 r, T* sum) { kernels::rms_add_dweight(dy + r * width, x + r * width, rstd[r], width, sum); });
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

ir::OpCase rms_norm_case(DType dtype, i64 rows, i64 width, double eps) {
  ir::OpCase example;
  example.label = fmt::format("R={} d={} eps={}", rows, width, eps);
  example.op = std::make_shared<RmsNorm>(eps);
  example.inputs = {{{dtype, {rows, width}}}, {{dtype, {width}}, {}, 0.5, 1.5}};
  example.oracle = [=](const ir::Values& in) {
    ir::Values out = {in[0], oracle_rstd(in[0], rows, width, eps)};
    for (i64 r = 0; r < rows; ++r) {
      for (i64 j = 0; j < width; ++j) {
        out[0][at(r, width, j)] *= out[1][static_cast<std::size_t>(r)] * in[1][static_cast<std::size_t>(j)];
      }
    }
    return out;
  };
  example.differentiable = {0, 1};
  example.gradient_outputs = {0};
  example.reduction_length = width;
  return example;
}

// rstd is an input like any other here: the oracle uses the given one.
ir::OpCase rms_norm_dx_case(DType dtype, i64 rows, i64 width) {
  ir::OpCase example;
  example.label = fmt::format("R={} d={}", rows, width);
  example.op = std::make_shared<RmsNormDx>();
  example.inputs = {{{dtype, {rows, width}}},
                    {{dtype, {rows, width}}},
                    {{dtype, {width}}, {}, 0.5, 1.5},
                    {{dtype, {rows}}, {}, 0.5, 1.5}};
  example.oracle = [=](const ir::Values& in) {
    ir::Values out(1);
    for (i64 r = 0; r < rows; ++r) {
      const double rstd = in[3][static_cast<std::size_t>(r)];
      double mean = 0;
      for (i64 j = 0; j < width; ++j) {
        mean += in[0][at(r, width, j)] * in[2][static_cast<std::size_t>(j)] * in[1][at(r, width, j)] * rstd;
      }
      mean /= static_cast<double>(width);
      for (i64 j = 0; j < width; ++j) {
        const double g = in[0][at(r, width, j)] * in[2][static_cast<std::size_t>(j)];
        out[0].push_back(rstd * (g - in[1][at(r, width, j)] * rstd * mean));
      }
    }
    return out;
  };
  example.reduction_length = width;
  return example;
}

ir::OpCase rms_norm_dw_case(DType dtype, i64 rows, i64 width) {
  ir::OpCase example;
  example.label = fmt::format("R={} d={}", rows, width);
  example.op = std::make_shared<RmsNormDw>();
  example.inputs = {{{dtype, {rows, width}}}, {{dtype, {rows, width}}}, {{dtype, {rows}}, {}, 0.5, 1.5}};
  example.oracle = [=](const ir::Values& in) {
    ir::Values out(1, std::vector<double>(static_cast<std::size_t>(width), 0.0));
    for (i64 r = 0; r < rows; ++r) {
      for (i64 j = 0; j < width; ++j) {
        out[0][static_cast<std::size_t>(j)] +=
            in[0][at(r, width, j)] * in[1][at(r, width, j)] * in[2][static_cast<std::size_t>(r)];
      }
    }
    return out;
  };
  example.reduction_length = rows;
  return example;
}

}  // namespace

void RmsNorm::visit_attributes(ir::AttributeVisitor& visitor) const { visitor.visit("eps", eps_); }

Expected<std::vector<ir::TensorType>> RmsNorm::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 2 || !is_compute(inputs[0], 2) ||
      !is_type(inputs[1], inputs[0].dtype, {inputs[0].shape[1]})) {
    return ir::shape_error("needs x F[R,d] and weight F[d], F = f32 or f64", inputs);
  }
  return std::vector<ir::TensorType>{inputs[0], {inputs[0].dtype, {inputs[0].shape[0]}}};
}

std::vector<ir::ValueId> RmsNorm::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                      std::span<const ir::ValueId> cotangents) const {
  WYCH_CHECK(cotangents[1] == ir::kNoValue, "rms_norm has no gradient through rstd");
  const ir::ValueId dy = cotangents[0];
  const ir::ValueId x = node.inputs[0];
  const ir::ValueId rstd = node.outputs[1];
  return {builder.add_one(std::make_shared<RmsNormDx>(), {dy, x, node.inputs[1], rstd}),
          builder.add_one(std::make_shared<RmsNormDw>(), {dy, x, rstd})};
}

std::vector<ir::Alias> RmsNorm::aliases() const { return {{0, 0, ir::AliasKind::kMay}}; }

void RmsNorm::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) { normalise<T>(context, eps_); });
}

Expected<std::vector<ir::TensorType>> RmsNormDx::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 4 || !is_compute(inputs[0], 2) || inputs[1] != inputs[0] ||
      !is_type(inputs[2], inputs[0].dtype, {inputs[0].shape[1]}) ||
      !is_type(inputs[3], inputs[0].dtype, {inputs[0].shape[0]})) {
    return ir::shape_error("needs dy F[R,d], x F[R,d], weight F[d] and rstd F[R], F = f32 or f64", inputs);
  }
  return std::vector<ir::TensorType>{inputs[0]};
}

std::vector<ir::Alias> RmsNormDx::aliases() const {
  return {{0, 0, ir::AliasKind::kMay}, {1, 0, ir::AliasKind::kMay}};
}

void RmsNormDx::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) { normalise_dx<T>(context); });
}

Expected<std::vector<ir::TensorType>> RmsNormDw::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 3 || !is_compute(inputs[0], 2) || inputs[1] != inputs[0] ||
      !is_type(inputs[2], inputs[0].dtype, {inputs[0].shape[0]})) {
    return ir::shape_error("needs dy F[R,d], x F[R,d] and rstd F[R], F = f32 or f64", inputs);
  }
  return std::vector<ir::TensorType>{{inputs[0].dtype, {inputs[0].shape[1]}}};
}

i64 RmsNormDw::workspace(std::span<const ir::TensorType> inputs,
                         std::span<const ir::TensorType> outputs) const {
  return kernels::rms_num_shares(inputs[0].shape[0]) * outputs[0].bytes();
}

i64 RmsNormDw::cuda_workspace(std::span<const ir::TensorType> inputs, std::span<const ir::TensorType> outputs,
                              const CudaTarget& /*target*/) const {
  return ceil_div(inputs[0].shape[0], kCudaRowsPerChunk) * outputs[0].bytes();
}

void RmsNormDw::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) { normalise_dw<T>(context); });
}

ir::ValueId rms_norm(ir::Builder& builder, ir::ValueId x, ir::ValueId weight, double eps) {
  return builder.add(std::make_shared<RmsNorm>(eps), {x, weight})[0];
}

void register_rms_norm(ir::Registry& registry) {
  registry.add("rms_norm", [](DType dtype) -> std::vector<ir::OpCase> {
    return {rms_norm_case(dtype, 7, 5, 1e-5), rms_norm_case(dtype, 1, 1, 1e-5),
            rms_norm_case(dtype, 3, 128, 1e-6), rms_norm_case(dtype, 131, 67, 1e-6)};
  });
  registry.add("rms_norm_dx", [](DType dtype) -> std::vector<ir::OpCase> {
    return {rms_norm_dx_case(dtype, 7, 5), rms_norm_dx_case(dtype, 1, 1), rms_norm_dx_case(dtype, 131, 67)};
  });
  registry.add("rms_norm_dw", [](DType dtype) -> std::vector<ir::OpCase> {
    return {rms_norm_dw_case(dtype, 7, 5), rms_norm_dw_case(dtype, 1, 1), rms_norm_dw_case(dtype, 197, 67)};
  });
}

}  // namespace wych::ops
