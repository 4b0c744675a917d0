// A histogram per group in integers, exact for any number of tokens, divided once.
// A group is the unit of parallel work.
#include "ops/expert_fractions.h"

#include <algorithm>

#include "ir/builder.h"
#include "ops/moe_cases.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

std::vector<ir::OpCase> expert_fractions_cases(DType dtype) {
  struct Example {
    const char* label;
    i64 groups, tokens_per_group, k, experts;
  };
  constexpr Example kExamples[] = {{"G=3 n=7 k=2 E=5", 3, 7, 2, 5},
                                   {"G=1 n=1 k=1 E=1", 1, 1, 1, 1},
                                   {"G=1 n=331 k=3 E=64", 1, 331, 3, 64},
                                   {"G=2 n=2053 k=3 E=7", 2, 2053, 3, 7},
                                   {"G=1 n=7 k=2 E=1031", 1, 7, 2, 1031}};
  std::vector<ir::OpCase> cases;
  for (const Example& shape : kExamples) {
    const i64 tokens = shape.groups * shape.tokens_per_group;
    ir::OpCase example;
    example.label = shape.label;
    example.op = std::make_shared<ExpertFractions>(shape.experts, shape.tokens_per_group, dtype);
    example.inputs = {
        {{DType::kI32, {tokens, shape.k}}, scattered_indices(tokens, shape.k, shape.experts, -1)}};
    example.oracle = [shape](const ir::Values& inputs) {
      std::vector<double> f(static_cast<std::size_t>(shape.groups * shape.experts));
      for (std::size_t route = 0; route < inputs[0].size(); ++route) {
        const i64 group = static_cast<i64>(route) / (shape.tokens_per_group * shape.k);
        f[static_cast<std::size_t>(group * shape.experts + static_cast<i64>(inputs[0][route]))] +=
            1.0 / static_cast<double>(shape.tokens_per_group);
      }
      return ir::Values{f};
    };
    example.reduction_length = shape.tokens_per_group;
    cases.push_back(std::move(example));
  }
  return cases;
}

}  // namespace

void ExpertFractions::visit_attributes(ir::AttributeVisitor& visitor) const {
  visitor.visit("experts", experts_);
  visitor.visit("tokens_per_group", tokens_per_group_);
  visitor.visit("dtype", dtype_name(dtype_));
}

Expected<std::vector<ir::TensorType>> ExpertFractions::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 1 || !is_index(inputs[0], 2) || !is_compute(dtype_) || experts_ < 1 ||
      tokens_per_group_ < 1 || inputs[0].shape[0] % tokens_per_group_ != 0) {
    return ir::shape_error(fmt::format("needs indices i32[T,k] with T a multiple of {}", tokens_per_group_),
                           inputs);
  }
  return std::vector<ir::TensorType>{{dtype_, {inputs[0].shape[0] / tokens_per_group_, experts_}}};
}

std::vector<ir::ValueId> ExpertFractions::vjp(ir::Builder& /*builder*/, const ir::NodeValues& /*node*/,
                                              std::span<const ir::ValueId> /*cotangents*/) const {
  return {ir::kNoValue};
}

i64 ExpertFractions::workspace(std::span<const ir::TensorType> /*inputs*/,
                               std::span<const ir::TensorType> outputs) const {
  return outputs[0].elements() * static_cast<i64>(sizeof(i32));
}

i64 ExpertFractions::cuda_workspace(std::span<const ir::TensorType> inputs,
                                    std::span<const ir::TensorType> outputs,
                                    const CudaTarget& /*target*/) const {
  return ceil_div(tokens_per_group_ * inputs[0].shape[1], kCudaRoutesPerChunk) * outputs[0].elements() *
         static_cast<i64>(sizeof(i32));
}

void ExpertFractions::run_cpu(const ir::ExecContext& context) const {
  dispatch_float(dtype_, [&]<class T>(T) {
    const i32* indices = context.input(0).as<i32>();
    T* f = context.output(0).as<T>();
    i32* counts = reinterpret_cast<i32*>(context.workspace);  // [G,E]
    const i64 routes = tokens_per_group_ * context.input(0).dim(1);
    const i64 experts = experts_;
    const auto tokens = static_cast<T>(tokens_per_group_);
    context.pool->parallel_for(context.output(0).dim(0), [&](i64 group) {
      i32* count = counts + group * experts;
      std::fill_n(count, experts, 0);
      for (i64 route = group * routes; route < (group + 1) * routes; ++route) {
        WYCH_DCHECK(indices[route] >= 0 && indices[route] < experts, "expert {}", indices[route]);
        ++count[indices[route]];
      }
      for (i64 expert = 0; expert < experts; ++expert) {
        f[group * experts + expert] = static_cast<T>(count[expert]) / tokens;
      }
    });
  });
}

ir::ValueId expert_fractions(ir::Builder& builder, ir::ValueId indices, i64 experts, i64 tokens_per_group,
                             DType dtype) {
  return builder.add_one(std::make_shared<ExpertFractions>(experts, tokens_per_group, dtype), {indices});
}

void register_expert_fractions(ir::Registry& registry) {
  registry.add("expert_fractions", expert_fractions_cases);
}

}  // namespace wych::ops
