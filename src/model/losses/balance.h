// The load-balancing loss of a router, (E / k) sum_e f_e p_e, where f_e is the share of routes to expert e in
// tokens (sums to k) and p_e its mean probability: 1 when balanced. Over which tokens f and p are taken is
// the scope (docs/model.md); every value here is this microbatch's share of the whole batch's loss.
#pragma once

#include <vector>

#include "config/config.h"
#include "ir/builder.h"
#include "model/routers/softmax.h"

namespace wych::model {

// How a microbatch lies in the batch over which losses are averaged.
struct BatchShape {
  i64 sequence = 0;              // tokens of a sequence
  i64 microbatch_sequences = 0;  // sequences of one microbatch on one rank
  i64 batch_sequences = 0;       // sequences of the whole batch, all ranks and microbatches

  [[nodiscard]] i64 microbatch_tokens() const { return sequence * microbatch_sequences; }
  // Microbatches of the whole batch, all ranks together.
  [[nodiscard]] i64 num_microbatches() const { return batch_sequences / microbatch_sequences; }
};

// The path of the state of scope `global`: f of the last applied step, F[1, E].
std::string load_fractions_path(std::string_view block);

// The loss of one layer, f64[1], for every scope but hf_joint. `block` names the layer.
ir::ValueId balance_loss(ir::Builder& builder, const Routing& routing, std::string_view block,
                         const config::MoeConfig& moe, const BatchShape& batch);

// A microbatch's share of the mean router probabilities of the batch, F[E]: with the counts they give the
// step's own exact loss, which is logged for scope global.
ir::ValueId mean_probabilities(ir::Builder& builder, const Routing& routing, const BatchShape& batch);

// Scope hf_joint: all layers' tokens concatenated, E sum_e f_e p_e (not divided by k), as the transformers
// library computes it. Defined for a batch of one microbatch.
ir::ValueId joint_balance_loss(ir::Builder& builder, const std::vector<Routing>& layers,
                               const config::MoeConfig& moe);

}  // namespace wych::model
