// What the checks of the op suite share: inputs of a case, the graph around its op, a run in the interpreter
// with poisoned and guarded buffers, and comparisons. Functions that return a string return what is wrong, or
// the empty string. op_suite.h holds the checks.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/builder.h"
#include "ir/cases.h"

namespace wych::ops::suite {

inline constexpr std::byte kNanPoison{0xff};
inline constexpr std::byte kFinitePoison{0x5a};  // a large finite float, an index far out of range

// The inputs of a case, rounded to their types. NaN marks elements that hold poison.
ir::Values make_inputs(const ir::OpCase& example, u64 seed);

// Uniform in [-1, 1).
std::vector<double> random_like(const ir::TensorType& type, u64 seed);

// The case's op applied to graph inputs.
struct Program {
  ir::Graph graph;
  std::vector<ir::ValueId> inputs;
  std::vector<ir::ValueId> outputs;
};

enum class Body { kOp, kReference };

// One graph input per input of the case.
std::vector<ir::ValueId> add_inputs(ir::Builder& builder, const ir::OpCase& example);

// The op, or its reference composition if that is asked for or the op has no kernel; returns the outputs.
std::vector<ir::ValueId> apply(ir::Builder& builder, const ir::OpCase& example,
                               const std::vector<ir::ValueId>& inputs, Body body,
                               ir::ValueId accumulator = ir::kNoValue);

std::unique_ptr<Program> make_program(const ir::OpCase& example, Body body);

struct RunOptions {
  std::byte poison = kNanPoison;
  int may_alias = -1;  // InterpreterOptions::may_alias
  int num_threads = 2;
};

// The outputs of a program.
struct Result {
  std::vector<ir::TensorType> types;
  std::vector<std::vector<std::byte>> bytes;
  ir::Values values;
  std::string changed_input;  // what is wrong, or empty
};

Result run(const Program& program, const ir::Values& inputs, const RunOptions& options = {});

bool is_defined(const ir::OpCase& example, int output, std::size_t element, const ir::Values& inputs);

// The largest finite entry, or zero.
double largest_of(const std::vector<double>& values);

// Against expected values, within `scale` times the tolerance of the case (op_suite.h).
std::string compare(const ir::OpCase& example, const ir::Values& inputs, const Result& actual,
                    const ir::Values& expected, double scale);

// The bits of all defined elements.
std::string compare_bits(const ir::OpCase& example, const ir::Values& inputs, const Result& a,
                         const Result& b);

// "label: wrong" if something is wrong.
std::string labelled(std::string_view label, const std::string& wrong);

// Runs a check and turns a shape error into its result.
template <class F>
std::string guarded(F&& check) {
  try {
    return check();
  } catch (const ir::GraphError& error) {
    return fmt::format("infer rejects the case: {}", error.what());
  }
}

}  // namespace wych::ops::suite
