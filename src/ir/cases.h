// OpCase: one example of an op with which the suite checks it: values against an independent oracle or the
// op's reference composition in float64, gradients by finite differences, float32 against float64, poison.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ir/op.h"

namespace wych::ir {

// Everything as double, integers included: one vector per input or output, row-major.
using Values = std::vector<std::vector<double>>;

struct CaseInput {
  TensorType type;
  // Explicit content; if empty, uniform in [low, high) for floats, uniform integers in [low, high) for ints.
  // NaN entries mark what the op must not read.
  std::vector<double> values = {};
  double low = -1.0;
  double high = 1.0;
};

struct OpCase {
  std::string label;  // "T=7 E=3 one expert empty"; the same in both compute types
  std::shared_ptr<const Op> op;
  std::vector<CaseInput> inputs;
  // Independent values of the outputs, by plain loops; if absent the op must have a reference().
  std::function<Values(const Values& inputs)> oracle;
  // Inputs whose gradient is checked by finite differences. The op must be smooth at the case's inputs.
  std::vector<int> differentiable;
  // Outputs used in the gradient check; empty: all floating ones.
  std::vector<int> gradient_outputs;
  // True where an output element is defined; absent: everywhere. Undefined elements are not compared.
  std::function<bool(int output, i64 element, const Values& inputs)> defined;
  // Longest sum behind one output element: tolerances are eps * sqrt(length) * tolerance_scale * largest
  // entry.
  i64 reduction_length = 1;
  double tolerance_scale = 4.0;
  // False: the CUDA kernel may sum in another order each time, so bits need not repeat.
  bool repeats_on_cuda = true;
};

}  // namespace wych::ir
