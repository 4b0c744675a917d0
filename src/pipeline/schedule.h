// A pipeline schedule is data: for each rank the list of actions in the order in which it runs them.
// Gradient accumulation is the schedule of a pipeline of one stage, so a single rank and many share all code.
// Nothing here knows tensors; passes/unroll.h turns actions into a program.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/expected.h"
#include "base/types.h"

namespace wych::pipeline {

enum class Kind : u8 { kForward, kBackward };

struct Action {
  i32 stage = 0;
  Kind kind = Kind::kForward;
  i32 microbatch = 0;
  friend bool operator==(const Action&, const Action&) = default;
};

// The actions of each rank.
using Schedule = std::vector<std::vector<Action>>;

// One stage on one rank: 0F0 0B0 0F1 0B1 ...; every microbatch's activations die before the next begins.
Schedule one_stage(i32 num_microbatches);

// "0F0": stage, kind, microbatch. Actions are separated by spaces, ranks by newlines.
std::string action_text(const Action& action);
std::string schedule_text(const Schedule& schedule);

// Every (stage, microbatch) has one forward and one backward, both on the same rank and in that order, and
// nothing waits for ever: ranks are replayed with the rule that F of stage s needs F of stage s - 1 and B of
// stage s needs B of stage s + 1. The error names the rank and the action that cannot run.
Expected<void> validate(const Schedule& schedule, i32 num_stages, i32 num_microbatches);

// The largest number of microbatches between their F and their B on a rank: slots for saved activations.
i32 max_in_flight(const std::vector<Action>& actions);

}  // namespace wych::pipeline
