// expand: replaces nodes whose op has no kernel on the target by their reference composition, until none is
// left. Runs before autodiff, so the gradient is that of the composition.
#pragma once

#include "ir/graph.h"

namespace wych::passes {

enum class KernelTarget : u8 { kCpu, kCuda };

ir::Graph expand(const ir::Graph& graph, KernelTarget target = KernelTarget::kCpu);

}  // namespace wych::passes
