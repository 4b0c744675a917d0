// unroll: turns the differentiated graph of one microbatch into the graph of a step, following the actions
// of a schedule (gradient accumulation is the schedule of a one-stage pipeline). Weight gradients become
// persistent values "grad.<weight>": the first microbatch writes them, later ones add.
#pragma once

#include <span>

#include "base/expected.h"
#include "ir/graph.h"

namespace wych::passes {

// The part of a microbatch that runs next.
struct MicrobatchAction {
  bool backward = false;
  i32 microbatch = 0;
};

// Paths that microbatch graphs share. Input "tokens" of microbatch 2 becomes "microbatch.2.tokens".
inline constexpr const char* kTargetsPath = "targets";
// The number of valid targets of the whole batch, by which every loss divides: an input of a microbatch's
// graph, computed by the first node of the step.
inline constexpr const char* kDenominatorPath = "step.denominator";

// Every output and loss of the microbatch graph must be a share of the whole step's (normalised by the
// denominator, or a count): the step's outputs are their sums in order of microbatches, under the same name;
// a loss `ce` becomes output "loss.ce". The step also outputs "targets", the denominator.
Expected<ir::Graph> unroll(const ir::Graph& microbatch, i32 num_microbatches,
                           std::span<const MicrobatchAction> actions);

// The path of an input of one microbatch.
std::string microbatch_path(i32 microbatch, std::string_view input);
// The path of a weight's gradient.
std::string gradient_path(std::string_view weight);

}  // namespace wych::passes
