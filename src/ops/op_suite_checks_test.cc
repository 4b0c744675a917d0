// The checks that op_suite.h declares. Each builds a small graph around the case and runs it in the
// interpreter, whose buffers are poisoned and guarded.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "ir/builder.h"
#include "ir/interpret.h"
#include "ops/op_suite.h"

namespace wych::ops {
namespace {

using ir::AliasKind;
using ir::CaseInput;
using ir::OpCase;
using ir::TensorType;
using ir::ValueId;
using ir::Values;

constexpr std::byte kNanPoison{0xff};
constexpr std::byte kFinitePoison{0x5a};  // a large finite float, an index far out of range

// SplitMix64: enough for test data, the same on every platform.
class Random {
 public:
  explicit Random(u64 seed) : state_(seed) {}
  double uniform(double low, double high) {
    state_ += 0x9e3779b97f4a7c15ULL;
    u64 bits = state_;
    bits = (bits ^ (bits >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    bits = (bits ^ (bits >> 27U)) * 0x94d049bb133111ebULL;
    bits ^= bits >> 31U;
    return low + (high - low) * static_cast<double>(bits >> 11U) * 0x1p-53;
  }

 private:
  u64 state_;
};

double rounded(double value, DType dtype) {
  std::array<std::byte, 8> element{};
  ir::store_element(element.data(), dtype, 0, value);
  return ir::load_element(element.data(), dtype, 0);
}

// NaN marks elements that hold poison.
Values make_inputs(const OpCase& example, u64 seed) {
  Values values;
  for (std::size_t i = 0; i < example.inputs.size(); ++i) {
    const CaseInput& input = example.inputs[i];
    Random random(seed * 1000 + i);
    std::vector<double> content = input.values;
    if (content.empty()) {
      content.resize(static_cast<std::size_t>(input.type.elements()));
      for (double& value : content) {
        value = random.uniform(input.low, input.high);
        value = is_float(input.type.dtype) ? value : std::floor(value);
      }
    }
    WYCH_CHECK(static_cast<i64>(content.size()) == input.type.elements(), "input {} has {} values for {}", i,
               content.size(), input.type.text());
    for (double& value : content) {
      value = std::isnan(value) ? value : rounded(value, input.type.dtype);
    }
    values.push_back(std::move(content));
  }
  return values;
}

std::vector<double> random_like(const TensorType& type, u64 seed) {
  Random random(seed);
  std::vector<double> values(static_cast<std::size_t>(type.elements()));
  for (double& value : values) {
    value = rounded(random.uniform(-1, 1), type.dtype);
  }
  return values;
}

// The case's op applied to graph inputs.
struct Program {
  ir::Graph graph;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
};

enum class Body { kOp, kReference };

std::vector<ValueId> apply(ir::Builder& builder, const OpCase& example, const std::vector<ValueId>& inputs,
                           Body body, ValueId accumulator = ir::kNoValue) {
  if (body == Body::kReference || !example.op->has_cpu_kernel()) {
    return example.op->reference(builder, inputs);
  }
  return builder.add(example.op, inputs, accumulator);
}

std::vector<ValueId> add_inputs(ir::Builder& builder, const OpCase& example) {
  std::vector<ValueId> ids;
  for (std::size_t i = 0; i < example.inputs.size(); ++i) {
    ids.push_back(builder.input(fmt::format("input.{}", i), example.inputs[i].type));
  }
  return ids;
}

std::unique_ptr<Program> make_program(const OpCase& example, Body body) {
  auto program = std::make_unique<Program>();
  ir::Builder builder(program->graph);
  program->inputs = add_inputs(builder, example);
  program->outputs = apply(builder, example, program->inputs, body);
  return program;
}

// Writes values; NaN elements become `poison` bytes.
void fill(ir::Interpreter& interpreter, const ir::Graph& graph, ValueId id, const std::vector<double>& values,
          std::byte poison = kNanPoison) {
  const DType dtype = graph.type(id).dtype;
  const i64 bytes = dtype_bytes(dtype);
  std::byte* data = interpreter.data(id);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) {
      std::memset(data + static_cast<i64>(i) * bytes, static_cast<int>(poison),
                  static_cast<std::size_t>(bytes));
    } else {
      ir::store_element(data, dtype, static_cast<i64>(i), values[i]);
    }
  }
}

struct RunOptions {
  std::byte poison = kNanPoison;
  int may_alias = -1;
  int num_threads = 2;
};

struct Result {
  std::vector<TensorType> types;
  std::vector<std::vector<std::byte>> bytes;
  Values values;
  std::string changed_input;  // what is wrong, or empty
};

std::vector<std::byte> bytes_of(ir::Interpreter& interpreter, const ir::Graph& graph, ValueId id) {
  const std::byte* data = interpreter.data(id);
  return {data, data + graph.type(id).bytes()};
}

Result run(const Program& program, const Values& inputs, const RunOptions& options = {}) {
  ThreadPool pool(options.num_threads);
  ir::Interpreter interpreter(program.graph, pool,
                              {.poison = options.poison, .may_alias = options.may_alias});
  std::vector<std::vector<std::byte>> before;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    fill(interpreter, program.graph, program.inputs[i], inputs[i], options.poison);
    before.push_back(bytes_of(interpreter, program.graph, program.inputs[i]));
  }
  interpreter.run();
  Result result;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (before[i] != bytes_of(interpreter, program.graph, program.inputs[i])) {
      result.changed_input = fmt::format("changed input {}", i);
    }
  }
  for (const ValueId id : program.outputs) {
    result.types.push_back(program.graph.type(id));
    result.bytes.push_back(bytes_of(interpreter, program.graph, id));
    result.values.push_back(interpreter.read(id));
  }
  return result;
}

bool is_defined(const OpCase& example, int output, std::size_t element, const Values& inputs) {
  return !example.defined || example.defined(output, static_cast<i64>(element), inputs);
}

double epsilon(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return std::numeric_limits<float>::epsilon();
    case DType::kBF16:
      return 0x1p-7;
    case DType::kF64:
      return std::numeric_limits<double>::epsilon();
    default:
      return 0;
  }
}

// Relative error of one output element; zero for integers.
double relative_tolerance(const OpCase& example, const TensorType& output) {
  double eps = epsilon(output.dtype);
  if (eps == 0) {
    return 0;
  }
  for (const CaseInput& input : example.inputs) {
    eps = std::max(eps, epsilon(input.type.dtype));
  }
  return eps * std::sqrt(static_cast<double>(example.reduction_length)) * example.tolerance_scale;
}

bool agree(double actual, double expected, double tolerance) {
  if (std::isnan(expected) || std::isinf(expected)) {
    return std::isnan(expected) ? std::isnan(actual) : actual == expected;
  }
  return std::abs(actual - expected) <= tolerance;  // false for a NaN
}

std::string compare_output(const OpCase& example, const Values& inputs, int output,
                           const std::vector<double>& actual, const std::vector<double>& expected,
                           double relative) {
  if (actual.size() != expected.size()) {
    return fmt::format("output {} has {} elements, expected {}", output, actual.size(), expected.size());
  }
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (is_defined(example, output, i, inputs) && std::isfinite(expected[i])) {
      largest = std::max(largest, std::abs(expected[i]));
    }
  }
  std::string first;
  i64 num_wrong = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (is_defined(example, output, i, inputs) && !agree(actual[i], expected[i], relative * largest)) {
      if (num_wrong++ == 0) {
        first = fmt::format("output {} element {}: got {:.17g}, expected {:.17g}, tolerance {:.2g}", output,
                            i, actual[i], expected[i], relative * largest);
      }
    }
  }
  return num_wrong == 0 ? "" : fmt::format("{} ({} of {} wrong)", first, num_wrong, expected.size());
}

std::string compare(const OpCase& example, const Values& inputs, const Result& actual, const Values& expected,
                    double scale) {
  if (actual.values.size() != expected.size()) {
    return fmt::format("{} outputs, expected {}", actual.values.size(), expected.size());
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    std::string wrong = compare_output(example, inputs, static_cast<int>(i), actual.values[i], expected[i],
                                       scale * relative_tolerance(example, actual.types[i]));
    if (!wrong.empty()) {
      return wrong;
    }
  }
  return "";
}

std::string compare_bits(const OpCase& example, const Values& inputs, const Result& a, const Result& b) {
  for (std::size_t i = 0; i < a.bytes.size(); ++i) {
    const auto width = static_cast<std::size_t>(dtype_bytes(a.types[i].dtype));
    for (std::size_t e = 0; e * width < a.bytes[i].size(); ++e) {
      if (is_defined(example, static_cast<int>(i), e, inputs) &&
          std::memcmp(a.bytes[i].data() + e * width, b.bytes[i].data() + e * width, width) != 0) {
        return fmt::format("output {} element {} is {:.17g} and {:.17g}", i, e, a.values[i][e],
                           b.values[i][e]);
      }
    }
  }
  return "";
}

// Runs a check and turns a shape error into its result.
template <class F>
std::string guarded(F&& check) {
  try {
    return check();
  } catch (const ir::GraphError& error) {
    return fmt::format("infer rejects the case: {}", error.what());
  }
}

std::string labelled(std::string_view label, const std::string& wrong) {
  return wrong.empty() ? "" : fmt::format("{}: {}", label, wrong);
}

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
    double largest = 0;
    for (const double value : plain.values[o]) {
      largest = std::isfinite(value) ? std::max(largest, std::abs(value)) : largest;
    }
    return labelled("minus the accumulator, against no accumulator",
                    compare(example, inputs, sum, plain.values, 1 + 1 / std::max(largest, 1e-3)));
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
