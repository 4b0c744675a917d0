// autodiff: appends the backward of every loss of a graph. Losses are seeded each with its own weight and
// never summed into one scalar. Afterwards head_loss exists once, in the backward (design: the logits of a
// microbatch are never whole and never computed twice).
#pragma once

#include "base/expected.h"
#include "ir/graph.h"

namespace wych::passes {

// The graph with backward nodes and Graph::gradients, one for every persistent weight, in order of first use.
// Error if some weight has no gradient (it would silently never train), naming it.
Expected<ir::Graph> autodiff(const ir::Graph& forward);

}  // namespace wych::passes
