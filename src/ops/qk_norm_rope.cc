// On the CPU one op after the other, the second in place. The cases compare with the composition, whose parts
// have oracles of their own.
#include "ops/qk_norm_rope.h"

#include <algorithm>

#include "kernels/rms_rows.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

void visit_shape(const QkNormRopeShape& shape, ir::AttributeVisitor& visitor) {
  visitor.visit("per_head", i64{shape.per_head});
  shape.rope.visit(visitor);
}

// Whether a qkv, the weights and document_start fit; `weights` are both of them.
bool are_inputs(const QkNormRopeShape& shape, const ir::TensorType& qkv,
                std::span<const ir::TensorType> weights, const ir::TensorType& document_start) {
  const QkNormShape norm = shape.norm();
  return is_activation(qkv, 2) && qkv.shape[1] == norm.layout.width() && norm.layout.head_dim % 2 == 0 &&
         is_type(weights[0], stats_dtype(qkv.dtype), {norm.query_columns()}) &&
         is_type(weights[1], stats_dtype(qkv.dtype), {norm.key_columns()}) &&
         is_type(document_start, DType::kI32, {qkv.shape[0]});
}

ir::TensorType rstd_type(const ir::TensorType& qkv, const QkNormShape& norm) {
  return {stats_dtype(qkv.dtype), {qkv.shape[0], norm.query_rows() + norm.key_rows()}};
}

// What an error says of the types that are wanted.
std::string wanted(const QkNormRopeShape& shape, std::string_view first, std::string_view rstd) {
  const QkNormShape norm = shape.norm();
  return fmt::format(
      "needs {} A[T,{}], q_weight S[{}], k_weight S[{}], {}document_start i32[T] and an even "
      "head_dim (here {}), {}",
      first, norm.layout.width(), norm.query_columns(), norm.key_columns(), rstd, norm.layout.head_dim,
      kTypesText);
}

// The gradient of one weight from that of the normed qkv.
void run_weight(const ir::ExecContext& context, const QkNormShape& shape, QkPart part,
                const ir::View& dnormed, const ir::View& output, bool accumulate) {
  const ir::View inputs[] = {dnormed, context.input(1), context.input(4)};
  const ir::View outputs[] = {output};
  QkNormDw(shape, part)
      .run_cpu({.inputs = inputs,
                .outputs = outputs,
                .accumulate = accumulate,
                .workspace = context.workspace,
                .pool = context.pool});
}

struct Example {
  i64 tokens;
  QkNormRopeShape shape;
  i64 document;  // tokens of one

  [[nodiscard]] i64 rows() const { return shape.norm().query_rows() + shape.norm().key_rows(); }
  [[nodiscard]] ir::CaseInput qkv(DType dtype) const {
    return {{dtype, {tokens, shape.rope.layout.width()}}};
  }
  [[nodiscard]] ir::CaseInput weight(DType dtype, i64 columns) const {
    return {{stats_dtype(dtype), {columns}}, {}, 0.5, 1.5};
  }
  [[nodiscard]] ir::CaseInput document_start() const {
    ir::CaseInput input{{DType::kI32, {tokens}}};
    for (i64 t = 0; t < tokens; ++t) {
      const i64 position = t % shape.rope.sequence;
      input.values.push_back(static_cast<double>(position - position % document));
    }
    return input;
  }
  void finish(ir::OpCase& example) const {
    const HeadLayout& layout = shape.rope.layout;
    example.label = fmt::format("T={} hq={} hkv={} hd={} {}{}", tokens, layout.query_heads, layout.kv_heads,
                                layout.head_dim, shape.per_head ? "per head" : "full",
                                shape.rope.yarn.factor != 1.0 ? " yarn" : "");
    example.reduction_length = std::max(layout.query_width(), tokens * layout.query_heads);
    // An angle of p radians carries an error of p eps.
    example.tolerance_scale = 4.0 + static_cast<double>(shape.rope.sequence);
  }
};

ir::OpCase forward_case(DType dtype, const Example& e) {
  ir::OpCase example;
  const QkNormShape norm = e.shape.norm();
  example.op = std::make_shared<QkNormRope>(e.shape, 1e-5);
  example.inputs = {e.qkv(dtype), e.weight(dtype, norm.query_columns()), e.weight(dtype, norm.key_columns()),
                    e.document_start()};
  example.differentiable = {0, 1, 2};
  example.gradient_outputs = {0};
  e.finish(example);
  return example;
}

ir::OpCase backward_case(DType dtype, const Example& e) {
  ir::OpCase example;
  const QkNormShape norm = e.shape.norm();
  example.op = std::make_shared<QkNormRopeBackward>(e.shape);
  example.inputs = {e.qkv(dtype),
                    e.qkv(dtype),
                    e.weight(dtype, norm.query_columns()),
                    e.weight(dtype, norm.key_columns()),
                    {{stats_dtype(dtype), {e.tokens, e.rows()}}, {}, 0.5, 1.5},
                    e.document_start()};
  e.finish(example);
  return example;
}

std::vector<Example> examples() {
  return {{14, {false, {{3, 1, 6}, 10000.0, 7}}, 3},
          {1, {true, {{1, 1, 2}, 500000.0, 1}}, 1},
          {14, {true, {{4, 2, 8}, 10000.0, 7}}, 7},
          {14, {true, {{2, 1, 16}, 10000.0, 7, {8.0, 32, 32.0, 1.0, 1.25}}}, 3},
          {201, {false, {{2, 2, 32}, 10000.0, 67}}, 31},
          {26, {true, {{20, 5, 128}, 10000.0, 13}}, 5},
          {9, {false, {{33, 11, 64}, 10000.0, 9}}, 9}};
}

template <ir::OpCase (*kCase)(DType, const Example&)>
std::vector<ir::OpCase> cases(DType dtype) {
  std::vector<ir::OpCase> result;
  for (const Example& example : examples()) {
    result.push_back(kCase(dtype, example));
  }
  return result;
}

}  // namespace

void QkNormRope::visit_attributes(ir::AttributeVisitor& visitor) const {
  visit_shape(shape_, visitor);
  visitor.visit("eps", eps_);
}

Expected<std::vector<ir::TensorType>> QkNormRope::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 4 || !are_inputs(shape_, inputs[0], inputs.subspan(1, 2), inputs[3])) {
    return ir::shape_error(wanted(shape_, "qkv", ""), inputs);
  }
  return std::vector<ir::TensorType>{inputs[0], rstd_type(inputs[0], shape_.norm())};
}

std::vector<ir::ValueId> QkNormRope::reference(ir::Builder& builder,
                                               std::span<const ir::ValueId> inputs) const {
  const std::vector<ir::ValueId> normed =
      builder.add(std::make_shared<QkNorm>(shape_.norm(), eps_), {inputs[0], inputs[1], inputs[2]});
  return {rope(builder, normed[0], inputs[3], shape_.rope), normed[1]};
}

std::vector<ir::ValueId> QkNormRope::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                         std::span<const ir::ValueId> cotangents) const {
  WYCH_CHECK(cotangents[1] == ir::kNoValue, "qk_norm_rope has no gradient through rstd");
  std::vector<ir::ValueId> gradients = builder.add(
      std::make_shared<QkNormRopeBackward>(shape_),
      {cotangents[0], node.inputs[0], node.inputs[1], node.inputs[2], node.outputs[1], node.inputs[3]});
  gradients.push_back(ir::kNoValue);
  return gradients;
}

ir::Cost QkNormRope::cost(std::span<const ir::TensorType> inputs,
                          std::span<const ir::TensorType> outputs) const {
  ir::Cost cost = Op::cost(inputs, outputs);
  cost.flops = 7.0 * static_cast<double>(inputs[0].shape[0] * shape_.rope.layout.value_column());
  return cost;
}

std::vector<ir::Alias> QkNormRope::aliases() const { return {{0, 0, ir::AliasKind::kMay}}; }

i64 QkNormRope::workspace(std::span<const ir::TensorType> inputs,
                          std::span<const ir::TensorType> outputs) const {
  return Rope(shape_.rope).workspace(inputs.first(1), outputs.first(1));
}

void QkNormRope::run_cpu(const ir::ExecContext& context) const {
  ir::ExecContext norm = context;
  norm.inputs = context.inputs.first(3);
  QkNorm(shape_.norm(), eps_).run_cpu(norm);
  ir::ExecContext rotation = context;
  const ir::View inputs[] = {context.output(0), context.input(3)};
  rotation.inputs = inputs;
  rotation.outputs = context.outputs.first(1);
  Rope(shape_.rope).run_cpu(rotation);
}

void QkNormRopeBackward::visit_attributes(ir::AttributeVisitor& visitor) const {
  visit_shape(shape_, visitor);
}

Expected<std::vector<ir::TensorType>> QkNormRopeBackward::infer(
    std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 6 || !are_inputs(shape_, inputs[0], inputs.subspan(2, 2), inputs[5]) ||
      inputs[1] != inputs[0] || inputs[4] != rstd_type(inputs[0], shape_.norm())) {
    return ir::shape_error(wanted(shape_, "drotated and qkv", "rstd S[T,rows], "), inputs);
  }
  return std::vector<ir::TensorType>{inputs[0], inputs[2], inputs[3]};
}

std::vector<ir::ValueId> QkNormRopeBackward::reference(ir::Builder& builder,
                                                       std::span<const ir::ValueId> inputs) const {
  const ir::ValueId dnormed =
      builder.add_one(std::make_shared<Rope>(shape_.rope, /*inverse=*/true), {inputs[0], inputs[5]});
  const QkNormShape norm = shape_.norm();
  return {builder.add_one(std::make_shared<QkNormDx>(norm),
                          {dnormed, inputs[1], inputs[2], inputs[3], inputs[4]}),
          builder.add_one(std::make_shared<QkNormDw>(norm, QkPart::kQuery), {dnormed, inputs[1], inputs[4]}),
          builder.add_one(std::make_shared<QkNormDw>(norm, QkPart::kKey), {dnormed, inputs[1], inputs[4]})};
}

std::vector<ir::Alias> QkNormRopeBackward::aliases() const { return {{0, 0, ir::AliasKind::kMay}}; }

i64 QkNormRopeBackward::workspace(std::span<const ir::TensorType> inputs,
                                  std::span<const ir::TensorType> outputs) const {
  return std::max(
      Rope(shape_.rope).workspace(inputs.first(1), outputs.first(1)),
      kernels::rms_num_shares(inputs[0].shape[0]) * std::max(outputs[1].bytes(), outputs[2].bytes()));
}

i64 QkNormRopeBackward::cuda_blocks(i64 tokens, const CudaTarget& target) {
  return std::min<i64>(i64{kBlocksPerSm} * target.num_sms, tokens);
}

i64 QkNormRopeBackward::cuda_workspace(std::span<const ir::TensorType> inputs,
                                       std::span<const ir::TensorType> /*outputs*/,
                                       const CudaTarget& target) const {
  return cuda_blocks(inputs[0].shape[0], target) * shape_.rope.layout.value_column() * i64{sizeof(float)};
}

// The rotated gradient lies in dqkv until the norm's gradient takes its place.
void QkNormRopeBackward::run_cpu(const ir::ExecContext& context) const {
  const QkNormShape norm = shape_.norm();
  const ir::View& dqkv = context.output(0);
  ir::ExecContext step = context;
  const ir::View rotated[] = {context.input(0), context.input(5)};
  step.inputs = rotated;
  step.outputs = context.outputs.first(1);
  Rope(shape_.rope, /*inverse=*/true).run_cpu(step);
  run_weight(context, norm, QkPart::kQuery, dqkv, context.output(1), context.accumulate);
  run_weight(context, norm, QkPart::kKey, dqkv, context.output(2), false);
  const ir::View normed[] = {dqkv, context.input(1), context.input(2), context.input(3), context.input(4)};
  step.inputs = normed;
  QkNormDx(norm).run_cpu(step);
}

ir::ValueId qk_norm_rope(ir::Builder& builder, ir::ValueId qkv, ir::ValueId q_weight, ir::ValueId k_weight,
                         ir::ValueId document_start, const QkNormRopeShape& shape, double eps) {
  return builder.add(std::make_shared<QkNormRope>(shape, eps), {qkv, q_weight, k_weight, document_start})[0];
}

void register_qk_norm_rope(ir::Registry& registry) {
  registry.add("qk_norm_rope", cases<forward_case>);
  registry.add("qk_norm_rope_backward", cases<backward_case>);
}

}  // namespace wych::ops
