// lower: turns a graph into a Program by giving every value an address.
// Persistent values get their slot from the shared Layout. Everything else is two-level: values that cross
// from a microbatch's forward into its backward live in a stash block, one block per microbatch in flight;
// values inside one action live in scratch, which every action uses anew. What crosses microbatches (the
// denominator, metrics) lives at the bottom of scratch for the whole program; what the host reads, in io.
#pragma once

#include <optional>

#include "base/cuda_target.h"
#include "base/expected.h"
#include "plan/program.h"

namespace wych::plan {

// `graph` must pass ir::verify; the error is its. Extends `layout`. Workspaces are those of the CPU's kernels
// or of CUDA's for `cuda`.
Expected<Program> lower(std::string name, ir::Graph graph, Layout& layout,
                        const std::optional<CudaTarget>& cuda = std::nullopt);

}  // namespace wych::plan
