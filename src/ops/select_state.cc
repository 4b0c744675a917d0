// A copy or nothing; in the cases that are not applied the candidate must not even be read.
#include "ops/select_state.h"

#include <algorithm>
#include <limits>

#include "ir/builder.h"
#include "ops/row_chunks.h"
#include "ops/step_decision.h"
#include "ops/type_checks.h"

namespace wych::ops {
namespace {

std::vector<ir::OpCase> select_state_cases(DType dtype) {
  std::vector<ir::OpCase> cases;
  for (const bool applied : {true, false}) {
    for (const ir::Shape& shape : {ir::Shape{7, 3}, ir::Shape{1}, ir::Shape{kElementsPerChunk + 1}}) {
      const ir::TensorType type = {dtype, shape};
      std::vector<double> decision(Decision::kSize);
      decision[Decision::kApplied] = applied ? 1 : 0;
      ir::OpCase example;
      example.label = fmt::format("{} elements, {}applied", type.elements(), applied ? "" : "not ");
      example.op = std::make_shared<SelectState>();
      example.inputs = {{type, {}}, {type, {}}, {{DType::kF64, {Decision::kSize}}, std::move(decision)}};
      if (!applied) {  // a candidate that must not be read
        example.inputs[1].values.assign(static_cast<std::size_t>(type.elements()),
                                        std::numeric_limits<double>::quiet_NaN());
      }
      example.oracle = [applied](const ir::Values& inputs) { return ir::Values{inputs[applied ? 1 : 0]}; };
      example.tolerance_scale = 0;  // to the bit
      cases.push_back(std::move(example));
    }
  }
  return cases;
}

}  // namespace

Expected<std::vector<ir::TensorType>> SelectState::infer(std::span<const ir::TensorType> inputs) const {
  if (inputs.size() != 3 || !is_compute(inputs[0].dtype) || inputs[1] != inputs[0] ||
      !is_type(inputs[2], DType::kF64, {Decision::kSize})) {
    return ir::shape_error(fmt::format("needs state and candidate of one type F[..] and decision f64[{}]",
                                       static_cast<i64>(Decision::kSize)),
                           inputs);
  }
  return std::vector<ir::TensorType>{inputs[0]};
}

std::vector<ir::Alias> SelectState::aliases() const { return {{0, 0, ir::AliasKind::kInPlace}}; }

void SelectState::run_cpu(const ir::ExecContext& context) const {
  if (context.input(2).as<double>()[Decision::kApplied] == 0) {
    return;
  }
  dispatch_float(context.input(0).type->dtype, [&]<class T>(T) {
    const T* candidate = context.input(1).as<T>();
    T* state = context.output(0).as<T>();
    context.pool->parallel_chunks(context.output(0).elements(), kElementsPerChunk, [&](i64 begin, i64 end) {
      std::copy(candidate + begin, candidate + end, state + begin);
    });
  });
}

ir::ValueId select_state(ir::Builder& builder, ir::ValueId state, ir::ValueId candidate,
                         ir::ValueId decision) {
  return builder.add_one(std::make_shared<SelectState>(), {state, candidate, decision});
}

void register_select_state(ir::Registry& registry) { registry.add("select_state", select_state_cases); }

}  // namespace wych::ops
