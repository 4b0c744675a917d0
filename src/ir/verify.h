// The rules every graph keeps; run after every pass.
#pragma once

#include "base/expected.h"
#include "ir/graph.h"

namespace wych::ir {

// Checks that: every input of a node is defined before it; every value has exactly one producer; types equal
// what infer() says; what was updated in place is read by no later node, loss, output or gradient through an
// older value, nor by the updating node through another input; losses are f64[1]; paths of inputs and
// persistent values are unique; gradients have their parameter's shape.
// The error names the node and the value.
Expected<void> verify(const Graph& graph);

}  // namespace wych::ir
