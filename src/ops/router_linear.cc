#include "ops/router_linear.h"

#include "base/cuda_target.h"
#include "kernels/gemm.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

constexpr i64 kParts = 3;
constexpr i64 kOffsetAlignment = 256;

bool is_stats(const ir::TensorType& type, DType activation) {
  return type.dtype == stats_dtype(activation) && type.shape.rank() == 2;
}

ir::Cost product_cost(const ir::Op& op, std::span<const ir::TensorType> inputs,
                      std::span<const ir::TensorType> outputs, i64 tokens, i64 experts, i64 width) {
  ir::Cost cost = op.ir::Op::cost(inputs, outputs);
  cost.flops = 2.0 * static_cast<double>(tokens) * static_cast<double>(experts) * static_cast<double>(width);
  return cost;
}

}  // namespace

Expected<std::vector<ir::TensorType>> RouterLinear::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 2 || !is_activation(inputs[0], 2) || !is_stats(inputs[1], inputs[0].dtype) ||
      inputs[0].shape[1] != inputs[1].shape[1]) {
    return ir::shape_error(fmt::format("needs x A[T,d] and weight S[E,d]; {}", kTypesText), inputs);
  }
  return std::vector<ir::TensorType>{{inputs[1].dtype, {inputs[0].shape[0], inputs[1].shape[0]}}};
}

std::vector<ir::ValueId> RouterLinear::vjp(ir::Builder& builder, const ir::NodeValues& node,
                                           std::span<const ir::ValueId> cotangents) const {
  const DType activation = builder.type(node.inputs[0]).dtype;
  return {builder.add_one(std::make_shared<RouterLinearDx>(activation), {cotangents[0], node.inputs[1]}),
          builder.add_one(std::make_shared<RouterLinearDw>(), {cotangents[0], node.inputs[0]})};
}

ir::Cost RouterLinear::cost(std::span<const ir::TensorType> inputs,
                            std::span<const ir::TensorType> outputs) const {
  return product_cost(*this, inputs, outputs, inputs[0].shape[0], inputs[1].shape[0], inputs[0].shape[1]);
}

i64 RouterLinear::cuda_workspace(std::span<const ir::TensorType> inputs,
                                 std::span<const ir::TensorType> outputs,
                                 const CudaTarget& /*target*/) const {
  return inputs[0].dtype == DType::kBF16
             ? router_workspace(inputs[1].elements(), 0, outputs[0].elements()).bytes
             : 0;
}

void RouterLinear::run_cpu(const ir::ExecContext& context) const {
  const i64 tokens = context.input(0).dim(0);
  const i64 width = context.input(0).dim(1);
  const i64 experts = context.input(1).dim(0);
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) {
    kernels::gemm(*context.pool, false, true, tokens, experts, width, context.input(0).as<T>(), width,
                  context.input(1).as<T>(), width, false, context.output(0).as<T>(), experts);
  });
}

void RouterLinearDx::visit_attributes(ir::AttributeVisitor& visitor) const {
  visitor.visit("activation", dtype_name(activation_));
}

Expected<std::vector<ir::TensorType>> RouterLinearDx::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 2 || !is_activation(activation_) || !is_stats(inputs[0], activation_) ||
      !is_stats(inputs[1], activation_) || inputs[0].shape[1] != inputs[1].shape[0]) {
    return ir::shape_error(fmt::format("needs dlogits S[T,E] and weight S[E,d] for A = {}; {}",
                                       dtype_name(activation_), kTypesText),
                           inputs);
  }
  return std::vector<ir::TensorType>{{activation_, {inputs[0].shape[0], inputs[1].shape[1]}}};
}

ir::Cost RouterLinearDx::cost(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const {
  return product_cost(*this, inputs, outputs, inputs[0].shape[0], inputs[0].shape[1], inputs[1].shape[1]);
}

i64 RouterLinearDx::cuda_workspace(std::span<const ir::TensorType> inputs,
                                   std::span<const ir::TensorType> /*outputs*/,
                                   const CudaTarget& /*target*/) const {
  return activation_ == DType::kBF16 ? router_workspace(inputs[0].elements(), inputs[1].elements(), 0).bytes
                                     : 0;
}

void RouterLinearDx::run_cpu(const ir::ExecContext& context) const {
  const i64 tokens = context.input(0).dim(0);
  const i64 experts = context.input(0).dim(1);
  const i64 width = context.input(1).dim(1);
  dispatch_float(activation_, [&]<class T>(T) {
    kernels::gemm(*context.pool, false, false, tokens, width, experts, context.input(0).as<T>(), experts,
                  context.input(1).as<T>(), width, false, context.output(0).as<T>(), width);
  });
}

Expected<std::vector<ir::TensorType>> RouterLinearDw::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 2 || !is_activation(inputs[1], 2) || !is_stats(inputs[0], inputs[1].dtype) ||
      inputs[0].shape[0] != inputs[1].shape[0]) {
    return ir::shape_error(fmt::format("needs dlogits S[T,E] and x A[T,d]; {}", kTypesText), inputs);
  }
  return std::vector<ir::TensorType>{{inputs[0].dtype, {inputs[0].shape[1], inputs[1].shape[1]}}};
}

ir::Cost RouterLinearDw::cost(std::span<const ir::TensorType> inputs,
                              std::span<const ir::TensorType> outputs) const {
  return product_cost(*this, inputs, outputs, inputs[0].shape[0], inputs[0].shape[1], inputs[1].shape[1]);
}

i64 RouterLinearDw::cuda_workspace(std::span<const ir::TensorType> inputs,
                                   std::span<const ir::TensorType> outputs,
                                   const CudaTarget& /*target*/) const {
  return inputs[1].dtype == DType::kBF16
             ? router_workspace(inputs[0].elements(), 0, outputs[0].elements()).bytes
             : 0;
}

void RouterLinearDw::run_cpu(const ir::ExecContext& context) const {
  const i64 tokens = context.input(0).dim(0);
  const i64 experts = context.input(0).dim(1);
  const i64 width = context.input(1).dim(1);
  dispatch_float(context.input(1).type->dtype, [&]<class T>(T) {
    kernels::gemm(*context.pool, true, false, experts, width, tokens, context.input(0).as<T>(), experts,
                  context.input(1).as<T>(), width, context.accumulate, context.output(0).as<T>(), width);
  });
}

RouterWorkspace router_workspace(i64 split, i64 others, i64 product) {
  RouterWorkspace workspace;
  workspace.parts = kMatmulWorkspaceBytes;
  workspace.others = workspace.parts + round_up(kParts * split * dtype_bytes(DType::kBF16), kOffsetAlignment);
  workspace.product =
      workspace.others + round_up(kParts * others * dtype_bytes(DType::kBF16), kOffsetAlignment);
  workspace.bytes = workspace.product + kParts * product * dtype_bytes(DType::kF32);
  return workspace;
}

ir::ValueId router_linear(ir::Builder& builder, ir::ValueId x, ir::ValueId weight) {
  return builder.add_one(std::make_shared<RouterLinear>(), {x, weight});
}

namespace {

// Cases. The oracle is the definition, over indices.
enum class Direction : u8 { kForward, kDx, kDw };

// sum over p of a[i, p] b[p, j], with the operands' strides of (i, p) and (p, j).
struct Product {
  i64 rows;
  i64 columns;
  i64 length;
  std::array<i64, 2> a_strides;
  std::array<i64, 2> b_strides;

  [[nodiscard]] ir::Values operator()(const ir::Values& in) const {
    std::vector<double> out;
    for (i64 i = 0; i < rows; ++i) {
      for (i64 j = 0; j < columns; ++j) {
        double sum = 0;
        for (i64 p = 0; p < length; ++p) {
          sum += in[0][static_cast<std::size_t>(i * a_strides[0] + p * a_strides[1])] *
                 in[1][static_cast<std::size_t>(p * b_strides[0] + j * b_strides[1])];
        }
        out.push_back(sum);
      }
    }
    return {out};
  }
};

template <Direction kDirection>
ir::OpCase router_case(DType dtype, i64 tokens, i64 experts, i64 width) {
  const ir::CaseInput x{{dtype, {tokens, width}}};
  const ir::CaseInput weight{{stats_dtype(dtype), {experts, width}}};
  const ir::CaseInput dlogits{{stats_dtype(dtype), {tokens, experts}}};
  ir::OpCase example;
  example.label = fmt::format("T={} E={} d={}", tokens, experts, width);
  switch (kDirection) {
    case Direction::kForward:
      example.op = std::make_shared<RouterLinear>();
      example.inputs = {x, weight};
      example.oracle = Product{tokens, experts, width, {width, 1}, {1, width}};
      example.differentiable = {0, 1};
      example.reduction_length = width;
      break;
    case Direction::kDx:
      example.op = std::make_shared<RouterLinearDx>(dtype);
      example.inputs = {dlogits, weight};
      example.oracle = Product{tokens, width, experts, {experts, 1}, {width, 1}};
      example.reduction_length = experts;
      break;
    case Direction::kDw:
      example.op = std::make_shared<RouterLinearDw>();
      example.inputs = {dlogits, x};
      example.oracle = Product{experts, width, tokens, {1, experts}, {width, 1}};
      example.reduction_length = tokens;
      break;
  }
  return example;
}

template <Direction kDirection>
std::vector<ir::OpCase> router_cases(DType dtype) {
  return {router_case<kDirection>(dtype, 7, 5, 3), router_case<kDirection>(dtype, 1, 1, 1),
          router_case<kDirection>(dtype, 37, 67, 131), router_case<kDirection>(dtype, 64, 16, 32),
          router_case<kDirection>(dtype, 257, 8, 2)};
}

}  // namespace

void register_router_linear(ir::Registry& registry) {
  registry.add("router_linear", router_cases<Direction::kForward>);
  registry.add("router_linear_dx", router_cases<Direction::kDx>);
  registry.add("router_linear_dw", router_cases<Direction::kDw>);
}

}  // namespace wych::ops
