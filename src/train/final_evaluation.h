// What a run finds out when it ends: the loss on all held-out text, domain by domain, beside what counting
// alone reaches; and where the routers send that text.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/expected.h"
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

// Evaluates `held_out` (its sequences_per_batch is the engine's), beside baselines that count `train_files`.
// A domain without one whole sequence is left out. Without a tokenizer (nullptr) tokens are shown as their
// ids. Errors: kData from reading.
Expected<FinalEvaluation> evaluate_held_out(Engine& engine, const config::ModelConfig& model,
                                            std::span<const data::InstanceFile> train_files,
                                            const data::Instances& held_out, const data::Tokenizer* tokenizer,
                                            i64 step);

// Bits per byte of held-out text for a mean loss in nats; of one domain unless `domain` is empty. 0 if the
// bytes behind its tokens are not known.
double held_out_bits(const data::Instances& held_out, double nats, std::string_view domain = {});

// Event "final_evaluation": the scores of all held-out text, and of each domain under "domains".
io::JsonObject scores_json(const FinalEvaluation& evaluation);

// The routes of `text` as the model reads it: its ids, cut to one sequence. The first `num_given` tokens are
// marked as given.
RoutedText route_text(Engine& engine, const data::Tokenizer* tokenizer, const data::BatchOptions& options,
                      const RoutingRecord& routing, std::string title, std::span<const i32> ids,
                      i64 num_given);

}  // namespace wych::train
