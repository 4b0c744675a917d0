// Which programs a training run holds: one answer for the loop, which allocates them, and for `wych plan`,
// which prints what will be allocated.
#pragma once

#include <vector>

#include "config/config.h"
#include "train/programs.h"

namespace wych::train {

// Training, evaluation by microbatches, and generation if the run prints samples.
ProgramRequest run_request(const config::Config& config);

// Generation with a cache of `cache_length` positions; prompts are fed in pieces.
ProgramRequest generation_request(i64 cache_length);

// The programs that are there, in the order in which a run uses them.
std::vector<const plan::Program*> planned(const Programs& programs);

}  // namespace wych::train
