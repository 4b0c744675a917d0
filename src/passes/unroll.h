// unroll: turns the differentiated graph of one microbatch into the graph of a step, following the actions
// of a schedule (gradient accumulation is the schedule of a one-stage pipeline). Weight gradients become
// persistent values "grad.<weight>": the first microbatch writes them, later ones add.
#pragma once

#include <span>

#include "ir/graph.h"

namespace wych::passes {

// The part of a microbatch that runs next.
struct MicrobatchAction {
  bool backward = false;
  i32 microbatch = 0;
};

// Every output and loss of the microbatch graph must be a share of the whole step's (normalised by the
// denominator, or a count): the step's outputs are their sums in order of microbatches, under the same name;
// a loss `ce` becomes output "loss.ce". The step also outputs "targets", the denominator. Paths: ir/paths.h.
ir::Graph unroll(const ir::Graph& microbatch, i32 num_microbatches,
                 std::span<const MicrobatchAction> actions);

}  // namespace wych::passes
