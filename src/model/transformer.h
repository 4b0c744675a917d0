// The transformer as graphs for one device. One description of the blocks serves every program: training
// (losses, expert counts), evaluation, logits and generation with a cache.
#pragma once

#include "base/expected.h"
#include "config/config.h"
#include "ir/graph.h"
#include "model/losses/balance.h"

namespace wych::model {

struct BuildOptions {
  DType compute = DType::kF32;  // of activations; bf16 keeps weights twice (model/parameters.h)
  i64 alignment = 16;           // rows to which expert segments are aligned
  bool documents = true;  // false: document_start is at most 0 everywhere, and attention need not look at it
  bool deterministic = true;  // ops::AttentionShape
};

// One microbatch's forward (inputs: ir/paths.h) with its losses: "ce", "z", and per MoE layer
// "blocks.N.balance", "blocks.N.router_z" (or one "balance" for hf_joint), each the microbatch's share of the
// batch's. Outputs "blocks.N.counts" i32[E], the routes to each expert, and for the balance loss of scope
// global "blocks.N.mean_probs" F[E]. Error: a shape that does not fit, naming the node.
Expected<ir::Graph> build_training(const config::ModelConfig& model, const BatchShape& batch,
                                   const BuildOptions& options);

// Outputs "ce_sum" f64[1], the summed cross-entropy, and "targets" f64[1], their number; per MoE layer
// "blocks.N.experts" i32[T, k], each token's experts from the largest weight down, and "blocks.N.weights"
// F[T, k]. No auxiliary losses.
Expected<ir::Graph> build_evaluation(const config::ModelConfig& model, i64 sequences, i64 sequence,
                                     const BuildOptions& options);

// Output "logits" F[T, V padded].
Expected<ir::Graph> build_logits(const config::ModelConfig& model, i64 sequences, i64 sequence,
                                 const BuildOptions& options);

// `tokens` consecutive tokens of one sequence at positions start ... of a cache of `cache_length`. Inputs
// "tokens" i32[tokens], "start" i32[1], "document_start" i32[tokens] (all -start), "last" i32[1], the row
// whose logits are wanted. Output "logits" F[1, V padded]. Prefill and decode differ in `tokens` alone.
Expected<ir::Graph> build_generation(const config::ModelConfig& model, i64 tokens, i64 cache_length,
                                     const BuildOptions& options);

// Writes the compute copies of all weights that have one (model/parameters.h): after weights were set from
// outside.
Expected<ir::Graph> build_refresh(const config::ModelConfig& model, const BuildOptions& options);

// Whether initial values go to the weights that an optimizer updates, or for runs without one straight to the
// compute copies of those weights that have one (model/parameters.h).
enum class Initial : u8 { kMasters, kComputeCopies };

// Writes the initial weights, a function of input "seed" i64[1], the parameter's name and the index alone;
// and the initial state of the balance loss (uniform).
Expected<ir::Graph> build_initialisation(const config::ModelConfig& model, const BuildOptions& options,
                                         Initial initial = Initial::kMasters);

}  // namespace wych::model
