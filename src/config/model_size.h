// How large a model is and what a token costs, from its config alone: pure formulas, exact integers.
// The planner counts the same parameters from the graph; a test holds the two together.
#pragma once

#include "config/config.h"

namespace wych::config {

struct ParameterCounts {
  i64 total = 0;
  i64 active = 0;         // top_k of the experts, and everything else
  i64 embedding = 0;      // embed.weight, and head.weight unless tied; padded rows included
  i64 non_embedding = 0;  // total - embedding
};

// Of a valid config (load.h): sums below 2^63.
[[nodiscard]] ParameterCounts count_parameters(const ModelConfig& model);

// The total in floating point, for configs that may be absurdly large.
[[nodiscard]] double approximate_parameters(const ModelConfig& model);

// FLOPs of forward and backward of one token of a full sequence, a multiply-add counted as two:
//   sum over layers of 6 (d A + 2 d Akv + A d) + 12 A c(w)  +  dense: 18 d H  +  MoE: 6 d E + 18 d (k H +
//   H_shared)
//   + 6 d V
// with A and Akv the widths of queries and keys, V the padded vocabulary, and c(w) the mean number of
// positions a query sees: (S + 1) / 2, or (w (w + 1) / 2 + (S - w) w) / S under a window w < S.
// Recomputation, padding and unused capacity are lost time, not FLOPs.
[[nodiscard]] double train_flops_per_token(const ModelConfig& model);

}  // namespace wych::config
