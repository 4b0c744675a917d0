// check_gradient of op_suite.h: the vjp against central differences of the outputs' inner product with random
// cotangents.
#include <cmath>
#include <limits>

#include "ops/op_suite.h"
#include "ops/op_suite_run.h"

namespace wych::ops {
namespace {

using ir::OpCase;
using ir::ValueId;
using ir::Values;
using namespace suite;  // NOLINT: the suite's own files

std::vector<int> gradient_outputs(const OpCase& example, const Program& program) {
  if (!example.gradient_outputs.empty()) {
    return example.gradient_outputs;
  }
  std::vector<int> outputs;
  for (std::size_t i = 0; i < program.outputs.size(); ++i) {
    if (is_float(program.graph.type(program.outputs[i]).dtype)) {
      outputs.push_back(static_cast<int>(i));
    }
  }
  return outputs;
}

// Sum over defined elements of cotangent * output, and of its absolute terms.
struct Inner {
  double value = 0;
  double magnitude = 0;
};

Inner inner_product(const Values& cotangents, const Result& result, const std::vector<int>& outputs) {
  Inner inner;
  for (const int output : outputs) {
    const auto o = static_cast<std::size_t>(output);
    for (std::size_t i = 0; i < cotangents[o].size(); ++i) {
      if (!std::isnan(cotangents[o][i])) {
        inner.value += cotangents[o][i] * result.values[o][i];
        inner.magnitude += std::abs(cotangents[o][i] * result.values[o][i]);
      }
    }
  }
  return inner;
}

// Gradients of the inner product with respect to every input; empty where the vjp gives none.
Values gradients(const OpCase& example, const Values& inputs, const Values& cotangents,
                 const std::vector<int>& outputs) {
  Program program;
  ir::Builder builder(program.graph);
  program.inputs = add_inputs(builder, example);
  const std::vector<ValueId> forward = apply(builder, example, program.inputs, Body::kOp);
  const auto last = static_cast<ir::NodeId>(program.graph.nodes.size());
  std::vector<ir::Seed> seeds;
  Values given = inputs;
  for (const int output : outputs) {
    const auto o = static_cast<std::size_t>(output);
    program.inputs.push_back(builder.input(fmt::format("cotangent.{}", output), builder.type(forward[o])));
    given.push_back(cotangents[o]);
    seeds.push_back({forward[o], program.inputs.back()});
  }
  builder.set_phase(ir::Phase::kBackward);
  const std::vector<ValueId> wanted(program.inputs.begin(),
                                    program.inputs.begin() + static_cast<std::ptrdiff_t>(inputs.size()));
  const std::vector<ValueId> found = ir::reverse(builder, 0, last, seeds, wanted);
  for (const ValueId id : found) {
    if (id != ir::kNoValue) {
      program.outputs.push_back(id);
    }
  }
  const Result result = run(program, given);
  Values gradients(inputs.size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] != ir::kNoValue) {
      gradients[i] = result.values[next++];
    }
  }
  return gradients;
}

// Central difference of fourth order of the inner product along `direction` of one input.
double difference(const Program& program, const Values& inputs, std::size_t input,
                  const std::vector<double>& direction, const Values& cotangents,
                  const std::vector<int>& outputs, double step) {
  const auto at = [&](double distance) {
    Values moved = inputs;
    for (std::size_t i = 0; i < direction.size(); ++i) {
      moved[input][i] += distance * direction[i];
    }
    return inner_product(cotangents, run(program, moved, {.num_threads = 1}), outputs).value;
  };
  return (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step);
}

// Rounding gives an error of a few eps * sum |c y| / step ~ 1e-12 of that sum, truncation one of
// step^4 * fifth derivative: 1e-16 of it for anything that varies over a distance of one.
constexpr double kStep = 1e-4;
constexpr double kGradientTolerance = 1e-8;
constexpr double kRoundingTolerance = 1e-10;

std::string check_direction(const OpCase& example, const Program& program, const Values& inputs,
                            std::size_t input, const std::vector<double>& gradient, const Values& cotangents,
                            const std::vector<int>& outputs, u64 seed) {
  std::vector<double> direction = random_like(example.inputs[input].type, seed);
  double analytic = 0;
  double magnitude = 0;
  for (std::size_t i = 0; i < direction.size(); ++i) {
    if (std::isnan(inputs[input][i])) {
      direction[i] = 0;
    } else {
      analytic += gradient[i] * direction[i];
      magnitude += std::abs(gradient[i] * direction[i]);
    }
  }
  const double numeric = difference(program, inputs, input, direction, cotangents, outputs, kStep);
  const Inner inner = inner_product(cotangents, run(program, inputs), outputs);
  const double tolerance = kGradientTolerance * magnitude + kRoundingTolerance * inner.magnitude;
  if (std::abs(analytic - numeric) <= tolerance) {
    return "";
  }
  return fmt::format(
      "gradient of input {} along a direction is {:.12g}, differences give {:.12g} (+- {:.2g})", input,
      analytic, numeric, tolerance);
}

std::string check_gradient_of(const OpCase& example, const Program& program, const Values& inputs,
                              const Values& cotangents, const std::vector<int>& outputs, u64 seed) {
  const Values found = gradients(example, inputs, cotangents, outputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!is_float(example.inputs[i].type.dtype) && !found[i].empty()) {
      return fmt::format("integer input {} got a cotangent", i);
    }
  }
  for (const int wanted : example.differentiable) {
    const auto input = static_cast<std::size_t>(wanted);
    // No cotangent means zero: right only if the difference is zero too.
    const std::vector<double> gradient =
        found[input].empty() ? std::vector<double>(inputs[input].size(), 0.0) : found[input];
    for (u64 direction = 0; direction < 2; ++direction) {
      std::string wrong = check_direction(example, program, inputs, input, gradient, cotangents, outputs,
                                          seed + 100 * input + direction);
      if (!wrong.empty()) {
        return labelled(
            fmt::format("cotangent of output{} {}", outputs.size() > 1 ? "s" : "", fmt::join(outputs, ", ")),
            wrong);
      }
    }
  }
  return "";
}

}  // namespace

std::string check_gradient(const OpCase& example, u64 seed) {
  return guarded([&]() -> std::string {
    if (example.differentiable.empty()) {
      return "";
    }
    const Values inputs = make_inputs(example, seed);
    const std::unique_ptr<Program> program = make_program(example, Body::kOp);
    Values cotangents;
    for (std::size_t i = 0; i < program->outputs.size(); ++i) {
      cotangents.push_back(random_like(program->graph.type(program->outputs[i]), seed + 31 * i + 7));
      for (std::size_t element = 0; element < cotangents[i].size(); ++element) {
        if (!is_defined(example, static_cast<int>(i), element, inputs)) {
          cotangents[i][element] = std::numeric_limits<double>::quiet_NaN();
        }
      }
    }
    const std::vector<int> outputs = gradient_outputs(example, *program);
    std::string wrong = check_gradient_of(example, *program, inputs, cotangents, outputs, seed);
    for (std::size_t i = 0; outputs.size() > 1 && i < outputs.size() && wrong.empty(); ++i) {
      wrong = check_gradient_of(example, *program, inputs, cotangents, {outputs[i]}, seed);
    }
    return wrong;
  });
}

}  // namespace wych::ops
