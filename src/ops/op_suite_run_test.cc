// How the op suite runs a case and compares results; op_suite_run.h says what for.
#include "ops/op_suite_run.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "ir/interpret.h"

namespace wych::ops::suite {

using ir::CaseInput;
using ir::OpCase;
using ir::TensorType;
using ir::ValueId;
using ir::Values;

namespace {

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

// Writes values; NaN elements become `poison` bytes.
void fill(ir::Interpreter& interpreter, const ir::Graph& graph, ValueId id, const std::vector<double>& values,
          std::byte poison) {
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

std::vector<std::byte> bytes_of(ir::Interpreter& interpreter, const ir::Graph& graph, ValueId id) {
  const std::byte* data = interpreter.data(id);
  return {data, data + graph.type(id).bytes()};
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

// What should be zero may be a difference of entries of about one that round; in the oracle, too.
constexpr double kZeroTolerance = 4 * std::numeric_limits<double>::epsilon();

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
  const double tolerance = std::max(relative * largest, std::min(relative, kZeroTolerance));
  std::string first;
  i64 num_wrong = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (is_defined(example, output, i, inputs) && !agree(actual[i], expected[i], tolerance)) {
      if (num_wrong++ == 0) {
        first = fmt::format("output {} element {}: got {:.17g}, expected {:.17g}, tolerance {:.2g}", output,
                            i, actual[i], expected[i], tolerance);
      }
    }
  }
  return num_wrong == 0 ? "" : fmt::format("{} ({} of {} wrong)", first, num_wrong, expected.size());
}

}  // namespace

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

std::vector<ValueId> apply(ir::Builder& builder, const OpCase& example, const std::vector<ValueId>& inputs,
                           Body body, ValueId accumulator) {
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

Result run(const Program& program, const Values& inputs, const RunOptions& options) {
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

double largest_of(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) {
    largest = std::isfinite(value) ? std::max(largest, std::abs(value)) : largest;
  }
  return largest;
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

std::string labelled(std::string_view label, const std::string& wrong) {
  return wrong.empty() ? "" : fmt::format("{}: {}", label, wrong);
}

}  // namespace wych::ops::suite
