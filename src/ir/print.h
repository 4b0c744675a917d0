// The text form of a graph: one line per value that exists before the program, one per node.
#pragma once

#include <string>

#include "ir/graph.h"

namespace wych::ir {

// "f blocks.0 | %7 x:f32[64,32], %8:f32[64] = rms_norm(eps=1e-05) %3, blocks.0.attention_norm"
// The first letter is the phase (f, r, b, u), then come region and microbatch if there are any. "+= op ...
// onto %9" adds into the buffer of %9.
std::string graph_text(const Graph& graph);
std::string node_text(const Graph& graph, NodeId id);

}  // namespace wych::ir
