#include "ops/count_targets.h"

#include <algorithm>

#include "ops/type_checks.h"

namespace wych::ops {
namespace {

ir::OpCase count_case(i64 tokens, i64 microbatches) {
  ir::OpCase example;
  example.label = fmt::format("T={} n={}", tokens, microbatches);
  example.op = std::make_shared<CountTargets>();
  for (i64 n = 0; n < microbatches; ++n) {
    ir::CaseInput targets{{DType::kI32, {tokens}}};
    for (i64 t = 0; t < tokens; ++t) {
      targets.values.push_back((t + n) % 3 == 0 ? kIgnoredTarget : static_cast<double>(t % 5));
    }
    example.inputs.push_back(targets);
  }
  example.oracle = [](const ir::Values& in) {
    double count = 0;
    for (const std::vector<double>& targets : in) {
      for (const double target : targets) {
        count += target == -100 ? 0 : 1;
      }
    }
    return ir::Values{{count}};
  };
  return example;
}

}  // namespace

Expected<std::vector<ir::TensorType>> CountTargets::infer(std::span<const ir::TensorType> inputs) const {
  const bool valid = !inputs.empty() && std::all_of(inputs.begin(), inputs.end(),
                                                    [](const auto& type) { return is_index(type, 1); });
  if (!valid) {
    return ir::shape_error("needs one or more targets i32[T]", inputs);
  }
  return std::vector<ir::TensorType>{{DType::kF64, {1}}};
}

std::vector<ir::ValueId> CountTargets::vjp(ir::Builder& /*builder*/, const ir::NodeValues& node,
                                           std::span<const ir::ValueId> /*cotangents*/) const {
  return std::vector<ir::ValueId>(node.inputs.size(), ir::kNoValue);
}

i64 CountTargets::cuda_workspace(std::span<const ir::TensorType> inputs,
                                 std::span<const ir::TensorType> /*outputs*/,
                                 const CudaTarget& /*target*/) const {
  return static_cast<i64>(inputs.size()) * kCudaBlocks * static_cast<i64>(sizeof(i64));
}

void CountTargets::run_cpu(const ir::ExecContext& context) const {
  i64 count = 0;
  for (const ir::View& view : context.inputs) {
    const i32* targets = view.as<i32>();
    count += view.elements() - std::count(targets, targets + view.elements(), kIgnoredTarget);
  }
  context.output(0).as<double>()[0] = static_cast<double>(count);
}

ir::ValueId count_targets(ir::Builder& builder, std::span<const ir::ValueId> targets) {
  return builder.add_one(std::make_shared<CountTargets>(), {targets.begin(), targets.end()});
}

void register_count_targets(ir::Registry& registry) {
  registry.add("count_targets", [](DType) -> std::vector<ir::OpCase> {
    return {count_case(7, 1), count_case(1, 1), count_case(131, 4), count_case(4099, 1), count_case(3, 65)};
  });
}

}  // namespace wych::ops
