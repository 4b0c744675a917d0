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

// Positions that `prompt_tokens` (0 counts as one: the end-of-text token that starts a document) and
// `max_new_tokens` (0 counts as one) need, at most `sequence_length`. Arguments are not negative.
i64 generation_cache_length(i64 sequence_length, i64 prompt_tokens, i64 max_new_tokens);

// The programs that are there, in the order in which a run uses them.
std::vector<const plan::Program*> planned(const Programs& programs);

}  // namespace wych::train
