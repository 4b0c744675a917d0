// The update program: gradient norm, clipping, the skip decision and AdamW, all by ops. The host only writes
// the learning rate and reads the decision record afterwards.
#pragma once

#include "base/expected.h"
#include "config/config.h"
#include "ir/graph.h"
#include "model/parameters.h"
#include "model/transformer.h"

namespace wych::model {

// Paths that `train` writes and `update` reads.
inline constexpr const char* kStepLossPath = "step.loss";              // f64[1]: cross-entropy of the step
inline constexpr const char* kOptimizerStatePath = "optimizer.state";  // ops::StepState
inline constexpr const char* kLearningRatePath = "learning_rate";      // input f64[1]
std::string step_counts_path(std::string_view block);                  // i32[E]: routes of the step

// Whether weights of a group decay under this configuration.
bool decays(const config::OptimizerConfig& optimizer, ParameterGroup group);

// Reads "grad.NAME" of every parameter; updates the parameter, "NAME.m", "NAME.v" and the state in place.
// Output "decision" f64[Decision::kSize]. `batch_tokens`: tokens of the whole batch (scope global).
Expected<ir::Graph> build_update(const config::ModelConfig& model, const config::OptimizerConfig& optimizer,
                                 i64 batch_tokens, const BuildOptions& options);

// Binds what update reads to the outputs of an unrolled training graph: the loss and, for the balance loss of
// scope global, the expert counts.
void bind_update_inputs(ir::Graph& step, const config::ModelConfig& model);

}  // namespace wych::model
