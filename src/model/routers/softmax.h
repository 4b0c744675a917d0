// The softmax router: probabilities over all experts, the k largest win, ties to the lower expert.
#pragma once

#include "config/config.h"
#include "ir/builder.h"

namespace wych::model {

// What a router decides for T tokens, and what its losses need.
struct Routing {
  ir::ValueId logits = ir::kNoValue;   // F[T, E]
  ir::ValueId probs = ir::kNoValue;    // F[T, E]
  ir::ValueId weights = ir::kNoValue;  // F[T, k], with which the experts' outputs are summed
  ir::ValueId indices = ir::kNoValue;  // i32[T, k], the chosen experts
};

// hidden F[T, d], weight F[E, d]. Weights are the probabilities, divided by their sum over the k winners if
// the configuration says normalize_weights.
Routing softmax_router(ir::Builder& builder, ir::ValueId hidden, ir::ValueId weight,
                       const config::MoeConfig& moe);

}  // namespace wych::model
