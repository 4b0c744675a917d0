#include "model/update.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/builder.h"
#include "ir/paths.h"
#include "model/parameters.h"
#include "ops/adamw.h"
#include "ops/cast.h"
#include "ops/elementwise.h"
#include "ops/reshape.h"
#include "ops/select_state.h"
#include "ops/step_decision.h"
#include "ops/sum_of_squares.h"
#include "ops/type_checks.h"

namespace wych::model {
namespace {

using ir::Builder;
using ir::ValueId;

ops::StepDecisionOptions decision_options(const config::OptimizerConfig& optimizer) {
  ops::StepDecisionOptions options{
      .clip_norm = optimizer.clip_norm, .beta1 = optimizer.beta1, .beta2 = optimizer.beta2};
  if (optimizer.skip_step.enabled) {
    options.skip_window = optimizer.skip_step.window;
    options.skip_sigma = optimizer.skip_step.sigma;
    options.skip_min_steps = optimizer.skip_step.min_steps;
  }
  return options;
}

// f of the batch that was just applied becomes the f of the next step.
void update_load_fractions(Builder& builder, const std::string& block, const config::MoeConfig& moe,
                           i64 batch_tokens, DType compute, ValueId decision) {
  const ValueId counts =
      builder.persistent(step_counts_path(block), {DType::kI32, {moe.experts}}, ir::Category::kState);
  const ir::TensorType type{compute, {1, moe.experts}};
  const ValueId state = builder.persistent(load_fractions_path(block), type, ir::Category::kState);
  const ValueId fractions =
      ops::scale(builder, ops::cast(builder, counts, compute), 1.0 / static_cast<double>(batch_tokens));
  ops::select_state(builder, state, ops::reshape(builder, fractions, type.shape), decision);
}

}  // namespace

std::string step_counts_path(std::string_view block) { return fmt::format("step.{}.counts", block); }

bool decays(const config::OptimizerConfig& optimizer, ParameterGroup group) {
  switch (group) {
    case ParameterGroup::kEmbedding:
      return optimizer.decay_embeddings;
    case ParameterGroup::kNorm:
      return optimizer.decay_norms;
    case ParameterGroup::kRouter:
      return optimizer.decay_router;
    case ParameterGroup::kMatrix:
      return optimizer.decay_matrices;
  }
  return true;
}

Expected<ir::Graph> build_update(const config::ModelConfig& model, const config::OptimizerConfig& optimizer,
                                 i64 batch_tokens, const BuildOptions& options) {
  ir::Graph graph;
  Builder builder(graph);
  builder.set_phase(ir::Phase::kUpdate);
  const ir::TensorType scalar{DType::kF64, {1}};
  const DType stats = ops::stats_dtype(options.compute);
  std::vector<Parameter> parameters = model::parameters(model);
  // The global norm is summed in the order of names, in every layout.
  std::sort(parameters.begin(), parameters.end(),
            [](const Parameter& a, const Parameter& b) { return a.name < b.name; });
  std::vector<ValueId> gradients;
  for (const Parameter& parameter : parameters) {
    gradients.push_back(builder.persistent(ir::gradient_path(parameter.name), {stats, parameter.shape},
                                           ir::Category::kGradients));
  }
  const ops::StepDecisionOptions decision_setup = decision_options(optimizer);
  const ValueId state = builder.persistent(kOptimizerStatePath,
                                           {DType::kF64, {ops::StepState::size(decision_setup.skip_window)}},
                                           ir::Category::kState);
  const ops::StepDecisionValues decided =
      ops::step_decision(builder, builder.name(ops::sum_of_squares(builder, gradients), "squared_norms"),
                         builder.persistent(kStepLossPath, scalar, ir::Category::kState),
                         builder.input(kLearningRatePath, scalar), state, decision_setup);
  builder.name(decided.decision, "decision");
  builder.output("decision", decided.decision);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    const ir::TensorType type{stats, parameter.shape};
    const ValueId copy = has_compute_copy(parameter, options.compute)
                             ? builder.persistent(ir::compute_path(parameter.name),
                                                  {options.compute, parameter.shape}, ir::Category::kWeights)
                             : ir::kNoValue;
    ops::adamw(builder, builder.persistent(parameter.name, type, ir::Category::kWeights), gradients[i],
               builder.persistent(parameter.name + ".m", type, ir::Category::kState),
               builder.persistent(parameter.name + ".v", type, ir::Category::kState), decided.decision, copy,
               {.beta1 = optimizer.beta1,
                .beta2 = optimizer.beta2,
                .eps = optimizer.eps,
                .weight_decay = decays(optimizer, parameter.group) ? optimizer.weight_decay : 0.0});
  }
  if (model.moe.router.balance_loss.scope == config::BalanceScope::kGlobal) {
    for (i64 layer = 0; layer < model.n_layers; ++layer) {
      if (!model.is_dense_layer(layer)) {
        update_load_fractions(builder, block_name(layer), model.moe, batch_tokens, stats, decided.decision);
      }
    }
  }
  return graph;
}

void bind_update_inputs(ir::Graph& step, const config::ModelConfig& model) {
  Builder builder(step);
  builder.bind(step.find_output("loss.ce"), kStepLossPath, ir::Category::kState);
  if (model.moe.router.balance_loss.scope == config::BalanceScope::kGlobal) {
    for (i64 layer = 0; layer < model.n_layers; ++layer) {
      if (!model.is_dense_layer(layer)) {
        builder.bind(step.find_output(block_name(layer) + ".counts"), step_counts_path(block_name(layer)),
                     ir::Category::kState);
      }
    }
  }
}

}  // namespace wych::model
