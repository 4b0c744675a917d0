// Checks of op_suite.h that compare runs of a case: values, precision, accumulation, determinism, poison and
// aliases. op_suite_gradient_test.cc and op_suite_infer_test.cc hold the other two.
#include "ops/op_suite.h"

#include <algorithm>

#include "ops/op_suite_run.h"

namespace wych::ops {

using ir::AliasKind;
using ir::OpCase;
using ir::ValueId;
using ir::Values;
using namespace suite;  // NOLINT: the suite's own files

std::string check_values(const OpCase& example, u64 seed) {
  return guarded([&]() -> std::string {
    const Values inputs = make_inputs(example, seed);
    const Result result = run(*make_program(example, Body::kOp), inputs);
    if (!result.changed_input.empty()) {
      return result.changed_input;
    }
    const std::unique_ptr<Program> reference = make_program(example, Body::kReference);
    if (!example.oracle && reference->outputs.empty()) {
      return "has neither an oracle nor a reference";
    }
    if (example.oracle) {
      std::string wrong = compare(example, inputs, result, example.oracle(inputs), 1);
      if (!wrong.empty()) {
        return labelled("against the oracle", wrong);
      }
    }
    if (reference->outputs.empty()) {
      return "";
    }
    return labelled("against the reference",
                    compare(example, inputs, result, run(*reference, inputs).values, 2));
  });
}

std::string check_precision(const OpCase& single, const OpCase& twice, u64 seed) {
  return guarded([&]() -> std::string {
    if (single.label != twice.label) {
      return fmt::format("float32 case '{}' meets float64 case '{}'", single.label, twice.label);
    }
    const Values inputs = make_inputs(single, seed);
    const Result result = run(*make_program(single, Body::kOp), inputs);
    const Result expected = run(*make_program(twice, Body::kOp), inputs);
    return compare(single, inputs, result, expected.values, 1);
  });
}

std::string check_accumulate(const OpCase& example, u64 seed) {
  return guarded([&]() -> std::string {
    const int output = example.op->accumulates();
    if (output < 0 || !example.op->has_cpu_kernel()) {
      return "";
    }
    const auto o = static_cast<std::size_t>(output);
    const Values inputs = make_inputs(example, seed);
    const Result plain = run(*make_program(example, Body::kOp), inputs);
    Program program;
    ir::Builder builder(program.graph);
    program.inputs = add_inputs(builder, example);
    const ValueId accumulator = builder.input("accumulator", plain.types[o]);
    program.outputs = apply(builder, example, program.inputs, Body::kOp, accumulator);
    program.inputs.push_back(accumulator);
    Values given = inputs;
    given.push_back(random_like(plain.types[o], seed + 5));
    Result sum = run(program, given);
    for (std::size_t i = 0; i < sum.values[o].size(); ++i) {
      sum.values[o][i] -= given.back()[i];
    }
    // The subtraction undoes a sum of entries of size one: scale the tolerance by the larger of the two.
    const double largest = std::max(largest_of(plain.values[o]), 1e-3);
    return labelled("minus the accumulator, against no accumulator",
                    compare(example, inputs, sum, plain.values, 1 + 1 / largest));
  });
}

std::string check_determinism(const OpCase& example, u64 seed) {
  return guarded([&]() -> std::string {
    const Values inputs = make_inputs(example, seed);
    Program twice;
    ir::Builder builder(twice.graph);
    twice.inputs = add_inputs(builder, example);
    twice.outputs = apply(builder, example, twice.inputs, Body::kOp);
    const std::size_t count = twice.outputs.size();
    const std::vector<ValueId> again = apply(builder, example, twice.inputs, Body::kOp);
    twice.outputs.insert(twice.outputs.end(), again.begin(), again.end());
    Result first = run(twice, inputs, {.num_threads = 1});
    Result second;
    for (std::size_t i = 0; i < count; ++i) {
      second.bytes.push_back(first.bytes[count + i]);
      second.values.push_back(first.values[count + i]);
    }
    first.bytes.resize(count);
    std::string wrong = labelled("run twice", compare_bits(example, inputs, first, second));
    for (int num_threads = 2; num_threads <= 3 && wrong.empty(); ++num_threads) {
      const Result other = run(*make_program(example, Body::kOp), inputs, {.num_threads = num_threads});
      wrong = labelled(fmt::format("with 1 and {} threads", num_threads),
                       compare_bits(example, inputs, first, other));
    }
    return wrong;
  });
}

std::string check_poison(const OpCase& example, u64 seed) {
  return guarded([&]() -> std::string {
    const Values inputs = make_inputs(example, seed);
    const std::unique_ptr<Program> program = make_program(example, Body::kOp);
    return labelled("with NaN and with large values in undefined memory",
                    compare_bits(example, inputs, run(*program, inputs, {.poison = kNanPoison}),
                                 run(*program, inputs, {.poison = kFinitePoison})));
  });
}

std::string check_aliases(const OpCase& example, u64 seed) {
  return guarded([&]() -> std::string {
    const std::vector<ir::Alias> aliases = example.op->aliases();
    if (aliases.empty() || !example.op->has_cpu_kernel()) {
      return "";
    }
    const Values inputs = make_inputs(example, seed);
    const std::unique_ptr<Program> program = make_program(example, Body::kOp);
    const Result plain = run(*program, inputs);
    for (std::size_t i = 0; i < aliases.size(); ++i) {
      const auto input = static_cast<std::size_t>(aliases[i].input);
      const auto output = static_cast<std::size_t>(aliases[i].output);
      if (input >= inputs.size() || output >= plain.types.size() ||
          example.inputs[input].type.bytes() != plain.types[output].bytes()) {
        return fmt::format("alias {} joins input {} and output {} of different sizes", i, input, output);
      }
      if (aliases[i].kind == AliasKind::kMay) {
        std::string wrong =
            compare_bits(example, inputs, plain, run(*program, inputs, {.may_alias = static_cast<int>(i)}));
        if (!wrong.empty()) {
          return labelled(fmt::format("in place of input {}", input), wrong);
        }
      }
      if (aliases[i].kind == AliasKind::kView && plain.values[output] != inputs[input]) {
        return fmt::format("output {} is a view and differs from input {}", output, input);
      }
    }
    return "";
  });
}

}  // namespace wych::ops
