// fuse: neighbours that read the same rows become one op: the residual's addition with the norm behind it,
// and the norm's gradient with the addition of what passes it by. Runs last, on what is about to be planned:
// which values are kept, computed again or live on another stage is settled, and no value lives longer than
// before.
#pragma once

#include "ir/graph.h"

namespace wych::passes {

//   x = add a, b;  y, rstd = rms_norm x, w          ->  x, y, rstd = add_rms_norm a, b, w
//   dx, dw = rms_norm_backward ...;  s = add p, dx  ->  s, dw = add_rms_norm_backward ..., p
// where the second node follows the first at once and, for the gradient, nothing else reads dx.
ir::Graph fuse(const ir::Graph& graph);

}  // namespace wych::passes
