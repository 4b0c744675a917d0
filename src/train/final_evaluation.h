// What a run finds out when it ends: the loss on all held-out text, domain by domain, beside what counting
// alone reaches; and where the routers send that text.
#pragma once

#include <string>
#include <vector>

#include "base/expected.h"
#include "data/dataset.h"
#include "data/sampler.h"
#include "data/tokenizer.h"
#include "io/json.h"
#include "train/engine.h"
#include "train/routing.h"
#include "train/run_view.h"

namespace wych::train {

struct FinalEvaluation {
  EvalReport report;  // all domains: sums over targets, so the same as one pass over everything
  std::vector<DomainScore> domains;
  RoutingRecord routing;  // empty for a dense model
};

// Evaluates the held-out files of `dataset`, cut and batched by `options` (sequences_per_batch is the
// engine's). A domain without one whole sequence is left out. Errors: kData from reading.
Expected<FinalEvaluation> evaluate_held_out(Engine& engine, const config::ModelConfig& model,
                                            const data::Dataset& dataset, const data::Tokenizer& tokenizer,
                                            const data::BatchOptions& options, i64 step);

// Event "final_evaluation": the scores of all held-out text, and of each domain under "domains".
io::JsonObject scores_json(const FinalEvaluation& evaluation);

// The routes of a text as the model reads it, cut to one sequence. The first `num_given` of `ids` are marked
// as given to the model.
RoutedText route_text(Engine& engine, const data::Tokenizer& tokenizer, const data::BatchOptions& options,
                      const RoutingRecord& routing, std::string title, std::span<const i32> ids,
                      i64 num_given);

}  // namespace wych::train
